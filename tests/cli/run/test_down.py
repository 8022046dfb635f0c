import json
import os
import signal
import time
from pathlib import Path

import pytest

from weft.demo.mesh_process import _begun

pytestmark = pytest.mark.root


def namespaces(name):
    directory = Path("/run/netns")
    return [each.name for each in directory.iterdir() if name in each.name] if directory.exists() else []


@pytest.fixture
def other(weft, mesh_directory):
    name = f"other-{os.getpid()}"
    yield name
    weft("down", name)


def test_ends_a_mesh_and_leaves_nothing_of_it(weft, mesh_directory, other):
    assert weft("up", mesh_directory, "--name", other, "-d").returncode == 0
    assert namespaces(other)
    result = weft("down", other)
    assert (result.returncode, result.stderr) == (0, f"ending mesh {other} …\nmesh {other} is gone\n")
    assert namespaces(other) == []
    assert list(Path(weft.environment["WEFT_RUN_DIR"]).glob(f"{other}*")) == []


def test_cleans_up_behind_a_mesh_that_was_killed(weft, mesh_directory, other):
    assert weft("up", mesh_directory, "--name", other, "-d").returncode == 0
    status = json.loads(weft("status", "--mesh", other, "-o", "json").stdout)
    os.kill(status["pid"], signal.SIGKILL)
    while _begun(status["pid"]):
        time.sleep(0.01)
    assert namespaces(other)
    result = weft("down", other)
    assert "cleaned up after it" in result.stderr
    assert namespaces(other) == []
    for pod in (pod for each in status["workloads"] for pod in each["pods"] if pod["pid"]):
        assert not _begun(pod["pid"])  # ended, or a zombie that its parent has not reaped


def test_several_running_meshes_require_a_choice(weft, mesh, mesh_directory, other):
    assert weft("up", mesh_directory, "--name", other, "-d").returncode == 0
    result = weft("down")
    assert result.returncode == 2
    assert f"weft down {mesh}, or --all" in result.stderr


def test_an_unknown_name_is_an_error(weft, mesh):
    result = weft("down", f"{mesh}x")
    assert result.returncode == 1
    assert result.stderr == f"error: there is no mesh named `{mesh}x`\nhint: did you mean `{mesh}`?\n"
