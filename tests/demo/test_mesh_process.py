import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from weft.demo import mesh_process
from weft.demo.mesh_process import MeshProcess, ShopAnswer, StepFailed
from weft.netns import namespace


def test_reads_a_response_and_rejects_anything_else():
    assert mesh_process._answer(b'{"status": 200, "body": {"version": "v1"}, "at": 1.5}') == ShopAnswer(
        200, {"version": "v1"}, 1.5
    )
    with pytest.raises(StepFailed, match="not a response"):
        mesh_process._answer(b"Traceback (most recent call last):")


def test_a_process_is_distinguished_from_another_with_the_same_pid():
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    begun = mesh_process._begun(process.pid)
    assert begun
    assert begun != mesh_process._begun(os.getppid())
    process.kill()
    while mesh_process._begun(process.pid):  # a zombie does not count as alive
        time.sleep(0.01)
    process.communicate()


def test_a_mesh_that_was_never_started_left_nothing(tmp_path):
    never = MeshProcess(tmp_path, name="never", log=tmp_path / "log", until=time.monotonic() + 5)
    assert never.stop() == []
    assert never.log_lines() == []


def test_what_another_mesh_has_is_not_taken_for_ours(tmp_path):
    ours = MeshProcess(tmp_path, name="shop", log=tmp_path / "log", until=0)._is_ours
    assert all(
        map(ours, ["weft-shop.mesh", "weft-shop@3f.mesh", "/run/netns/weft-shop.a", "/run/weft/shop", "shop.log"])
    )
    assert not any(
        map(ours, ["weft-shop-2.mesh", "weft-my-shop.mesh", "/run/weft/shop-2", "my-shop.log", "/srv/shops"])
    )


@pytest.mark.root
def test_a_namespace_and_a_process_left_behind_are_reported(tmp_path):
    name = f"rig-{os.getpid()}"
    left = namespace.make(f"weft-{name}@0.left")  # a namespace that `weft down` does not remove
    stray = subprocess.Popen(["ip", "netns", "exec", left.name, "sleep", "100"])
    try:
        broken = MeshProcess(tmp_path, name=name, log=tmp_path / "log", until=time.monotonic() + 30)
        broken._mesh = subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"])
        while "sleep" not in Path(f"/proc/{stray.pid}/comm").read_text():  # the process begins as `ip`
            time.sleep(0.01)
        traces = broken.stop()
        assert broken.most_processes == 1
    finally:
        stray.kill()
        stray.wait()
        namespace.delete(left)
    assert traces == [
        "weft up ended with 3",
        f"process {stray.pid} (sleep)",
        f"namespace {left.name}",
        f"mount {left.path}",
    ]


def test_a_failed_command_is_reported_with_its_error(tmp_path):
    broken = MeshProcess(tmp_path, name="no-such-mesh", log=tmp_path / "log", until=time.monotonic() + 30)
    with pytest.raises(StepFailed, match=r"weft logs .* ended with 1: error: no mesh named `no-such-mesh`"):
        broken.logs("migrate")
