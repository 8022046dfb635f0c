"""An Envoy of the machine, started again whenever it ends. `test_front_door.py` kills a real one."""

from __future__ import annotations

import os

import pytest

from eventually import eventually
from weft.local.forwarding_envoy import EnvoyPlace, ForwardingEnvoy, own_directory, replace
from weft.model.proxy import PROXY_UID
from weft.netns import namespace

pytestmark = pytest.mark.root


async def test_an_envoy_that_ends_is_reported_and_started_again(tmp_path):
    tmp_path.chmod(0o755)
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\necho started\nexit 3\n")
    program.chmod(0o755)
    bridge = namespace.make(f"wt-forward-{os.urandom(3).hex()}")
    place = EnvoyPlace(what="the Envoy of this test", working_directory=tmp_path, visible=(tmp_path,))
    envoy = ForwardingEnvoy(program, tmp_path / "x.json", place)
    try:
        envoy.start()
        log = tmp_path / "x.log"
        await eventually(lambda: log.exists() and log.read_text().count("started") >= 2)
        await eventually(lambda: envoy.trouble == f"the Envoy of this test ended with status 3; see {log}")
    finally:
        await envoy.close()
        namespace.delete(bridge)
    assert envoy.pid == 0


def test_a_file_is_replaced_only_if_its_content_changes(tmp_path):
    own_directory(tmp_path / "own")
    assert (tmp_path / "own").stat().st_uid == PROXY_UID
    file = tmp_path / "own" / "x.json"
    replace(file, "one")
    first = file.stat().st_ino
    replace(file, "one")
    assert file.stat().st_ino == first
    replace(file, "two")
    assert file.read_text() == "two" and not file.with_name(".x.json").exists()
