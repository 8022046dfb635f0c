import json
from pathlib import Path

import pytest

from weft.envoy import binary, command
from weft.envoy.bootstrap import Bootstrap, BootstrapNode, Unix
from weft.model.proxy import PROXY_UID

pytestmark = pytest.mark.root

BOOTSTRAP = Bootstrap(node=BootstrapNode(name="a", namespace="b", addresses=("10.0.0.1",)), xds=Unix("/run/xds.sock"))


def test_the_bootstrap_is_a_file_that_the_proxys_user_can_read(tmp_path):
    prepared = command.prepare(BOOTSTRAP, binary.find(), tmp_path)
    file = Path(prepared.argv[prepared.argv.index("--config-path") + 1])
    assert file.parent == tmp_path
    assert file.stat().st_mode & 0o777 == 0o644
    assert json.loads(file.read_text())["node"]["id"] == BOOTSTRAP.node.id


def test_everything_it_needs_is_declared_visible(tmp_path):
    prepared = command.prepare(BOOTSTRAP, binary.find(), tmp_path)
    assert prepared.argv[0] == str(binary.find())
    assert prepared.visible == (str(binary.find().parent), str(tmp_path))
    assert prepared.environment == {}


async def test_runs_as_the_proxys_user_with_one_worker(ready_envoy):
    admin, process, _ = ready_envoy
    status = Path(f"/proc/{process.pid}/status").read_text()
    assert f"Uid:\t{PROXY_UID}\t" in status
    info = await admin.server_info()
    assert info["command_line_options"]["concurrency"] == 1
    assert info["command_line_options"]["disable_hot_restart"] is True
    assert info["command_line_options"]["drain_strategy"] == "Immediate"
