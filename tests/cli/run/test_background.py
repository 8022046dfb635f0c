import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from cli.statuses import mesh as mesh_of
from cli.statuses import pod, workload
from eventually import eventually_blocking
from weft.cli.run import background
from weft.cli.run.background import _is_over, _what_is_wrong
from weft.local.run_directory import has_ended
from weft.local.status import MeshStatus, PodPhase

pytestmark = pytest.mark.root

# Without a readiness probe, the pod would be ready as long as it runs.
FAILS = """\
apiVersion: weft.dev/v1alpha1
kind: Workload
metadata: {name: broken, namespace: shop}
spec: {command: [sh, -c, 'exit 3'], restart: Never, readiness: {tcp: {port: 9}}}
"""

NEVER_READY = """\
apiVersion: weft.dev/v1alpha1
kind: Workload
metadata: {name: deaf, namespace: shop}
spec: {command: [sleep, '600'], readiness: {tcp: {port: 9}}}
"""


def test_returns_once_all_pods_are_ready_and_prints_the_progress(weft, mesh_directory):
    name = f"back-{os.getpid()}"
    try:
        result = weft("up", mesh_directory, "--name", name, "--detach")
        assert result.returncode == 0
        assert result.stdout == ""
        assert "shop/talker-0: Ready" in result.stderr
        assert f"weft down {name} ends it" in result.stderr.splitlines()[-1]
    finally:
        weft("down", name)


def test_a_name_that_is_taken_is_refused_and_the_mesh_that_has_it_stays(weft, mesh, mesh_directory):
    result = weft("up", mesh_directory, "--name", mesh, "--detach")
    assert result.returncode == 1
    assert result.stderr.startswith(f"error: a mesh named `{mesh}` is running already\nhint: ")
    assert weft("status", "--mesh", mesh).returncode == 0


def test_failed_pods_are_reported_and_the_mesh_continues_to_run(weft, tmp_path):
    tmp_path.chmod(0o755)
    (tmp_path / "mesh.yaml").write_text(FAILS)
    name = f"fails-{os.getpid()}"
    try:
        result = weft("up", tmp_path, "--name", name, "--detach")
        assert result.returncode == 1
        assert "error: broken-0 failed: exited with status 3; the mesh continues to run" in result.stderr
        assert weft("status", "--mesh", name).returncode == 0
    finally:
        weft("down", name)


def test_waiting_for_the_pods_has_a_limit(weft, tmp_path):
    tmp_path.chmod(0o755)
    (tmp_path / "mesh.yaml").write_text(NEVER_READY)
    name = f"slow-{os.getpid()}"
    try:
        result = weft("up", tmp_path, "--name", name, "--detach", "--patience", "8")
        assert result.returncode == 1
        assert "error: after 8 s not ready: deaf-0 (Running: not ready: port 9: connection refused)" in result.stderr
        log = Path(weft.environment["WEFT_RUN_DIR"], f"{name}.log")
        assert f"cat {log}" in result.stderr
        assert log.stat().st_mode & 0o777 == 0o600
        os.kill(find_pid(weft, name), signal.SIGTERM)  # ended without `weft down`; its log is removed all the same
        deadline = time.monotonic() + 20
        while log.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not log.exists()
    finally:
        weft("down", name)


def test_at_most_five_pods_that_are_not_ready_are_named():
    pods = [pod("deaf", PodPhase.RUNNING, index=index) for index in range(300)]
    (wrong,) = _what_is_wrong(mesh_of(workload("deaf", *pods), objects=1), 60)
    assert wrong.startswith("after 60 s not ready: deaf-0 (Running)") and wrong.endswith("and 295 more")
    assert wrong.count("deaf-") == 5


def test_each_pod_that_becomes_ready_extends_the_wait(monkeypatch, capsys):
    """With a patience of 10 s, a pod becomes ready every 9 s: all of them take longer than the patience."""
    now = [0.0]

    def status(_name):
        ready = int(now[0] // 9)
        phases = [PodPhase.READY if index < ready else PodPhase.RUNNING for index in range(4)]
        pods = [pod("web", phase, index=index) for index, phase in enumerate(phases)]
        return mesh_of(workload("web", *pods), objects=1, is_checked=True, is_told=True)

    class Clock:
        monotonic = staticmethod(lambda: now[0])
        sleep = staticmethod(lambda seconds: now.__setitem__(0, now[0] + seconds))

    class Process:
        poll = staticmethod(lambda: None)

    monkeypatch.setattr(background, "fetch_status", status)
    monkeypatch.setattr(background, "time", Clock)
    assert _is_over(background._wait(Process(), "shop", 10.0, None))
    assert 36 <= now[0] < 37
    now[0] = 0.0
    assert not _is_over(background._wait(Process(), "shop", 8.0, None))
    assert 8 <= now[0] < 9


def find_pid(weft, name):
    return json.loads(weft("status", "--mesh", name, "-o", "json").stdout)["pid"]


SLOW = """\
apiVersion: weft.dev/v1alpha1
kind: Workload
metadata: {name: slow, namespace: shop}
spec: {command: [sleep, '600'], readiness: {exec: {command: [test, -e, FLAG]}, period: 100ms}}
"""


def test_one_that_failed_does_not_keep_the_others_from_being_waited_for(weft, tmp_path):
    tmp_path.chmod(0o755)
    flag = tmp_path / "ready"
    (tmp_path / "mesh.yaml").write_text(f"{FAILS}---\n{SLOW.replace('FLAG', str(flag))}")
    name = f"late-{os.getpid()}"
    command = [sys.executable, "-m", "weft.cli", "up", str(tmp_path), "--name", name, "--detach"]
    starting = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=weft.environment)
    try:
        assert starting.stderr is not None
        said = []
        for line in starting.stderr:
            said.append(line)
            if {"shop/broken-0: Failed", "shop/slow-0: Running"} <= {each.partition(" –")[0].strip() for each in said}:
                flag.touch()
        assert starting.wait() == 1
        assert "shop/slow-0: Ready\n" in said
        assert "error: broken-0 failed: exited with status 3; the mesh continues to run\n" in said
        assert not [line for line in said if line.startswith("error") and "slow-0" in line]
    finally:
        weft("down", name)
        starting.kill()


def test_a_directory_without_objects_is_reported_and_not_waited_for(weft, tmp_path):
    tmp_path.chmod(0o755)
    name = f"empty-{os.getpid()}"
    try:
        result = weft("up", tmp_path, "--name", name, "--detach", timeout=30)
        assert result.returncode == 0, result.stderr
        first, last = result.stderr.splitlines()
        assert first == f"no objects in {tmp_path} yet; waiting for files"
        assert last.startswith(f"mesh {name} runs ")
        (tmp_path / "mesh.yaml").write_text(FAILS)
        assert weft("status", "--mesh", name).returncode == 0
    finally:
        weft("down", name)


def test_the_last_line_counts_the_problems_in_the_files(weft, tmp_path, mesh_directory):
    tmp_path.chmod(0o755)
    (tmp_path / "mesh.yaml").write_text((mesh_directory / "mesh.yaml").read_text())
    (tmp_path / "bad.yaml").write_text("kind: [unfinished")
    name = f"bad-{os.getpid()}"
    try:
        result = weft("up", tmp_path, "--name", name, "--detach")
        assert result.returncode == 0, result.stderr
        assert result.stderr.splitlines()[-1] == f"1 error: see `weft status --mesh {name}`"
    finally:
        weft("down", name)


def test_the_cleanup_after_a_killed_mesh_is_reported(weft, mesh_directory):
    name = f"again-{os.getpid()}"
    try:
        assert weft("up", mesh_directory, "--name", name, "--detach").returncode == 0
        pid = find_pid(weft, name)
        os.kill(pid, signal.SIGKILL)
        while Path(f"/proc/{pid}/ns").exists() and not has_ended(pid):
            time.sleep(0.01)
        asked = weft("ps", "--mesh", name)
        assert asked.returncode == 1
        assert asked.stderr == f"error: mesh `{name}` was killed\nhint: clean up after it with: weft down {name}\n"
        assert f"mesh {name} was killed; clean up after it with: weft down {name}" in weft("ps").stderr
        result = weft("up", mesh_directory, "--name", name, "--detach")
        assert result.returncode == 0
        assert result.stderr.splitlines()[0] == f"cleaning up after mesh {name}, which had been killed"
    finally:
        weft("down", name)


def test_a_mesh_that_is_ended_while_it_starts_is_reported(weft, tmp_path):
    tmp_path.chmod(0o755)
    (tmp_path / "mesh.yaml").write_text(NEVER_READY)
    name = f"ended-{os.getpid()}"
    command = [sys.executable, "-m", "weft.cli", "up", str(tmp_path), "--name", name, "--detach"]
    starting = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=weft.environment)
    try:
        assert starting.stderr is not None
        while "deaf-0: Running" not in (line := starting.stderr.readline()):
            assert line, "it ended by itself"
        assert weft("down", name).returncode == 0
        said = starting.stderr.read()
        assert "error: the mesh ended with exit code 0" in said and "Traceback" not in said
        assert starting.wait() == 1
    finally:
        weft("down", name)
        starting.kill()


def test_counts_what_does_not_fit_together_before_it_returns(weft, tmp_path):
    tmp_path.chmod(0o755)
    (tmp_path / "mesh.yaml").write_text(
        """\
apiVersion: weft.dev/v1alpha1
kind: Workload
metadata: {name: idle, namespace: shop}
spec: {command: [sleep, '600']}
---
apiVersion: v1
kind: Service
metadata: {name: nobody, namespace: shop}
spec: {selector: {app: nobody}, ports: [{name: http, port: 80}]}
"""
    )
    name = f"fit-{os.getpid()}"
    try:
        result = weft("up", tmp_path, "--name", name, "--detach")
        assert result.stderr.splitlines()[-1] == f"1 warning: see `weft status --mesh {name}`"
    finally:
        weft("down", name)


def test_a_root_for_another_trust_domain_is_an_error_and_nothing_runs(weft, tmp_path):
    mesh, ca = tmp_path / "mesh", tmp_path / "ca"
    mesh.mkdir()
    (mesh / "mesh.yaml").write_text(FAILS)
    assert weft("ca", "init", ca, "--trust-domain", "other.example").returncode == 0
    result = weft("up", mesh, "--name", f"other-{os.getpid()}", "--detach", "--ca", ca)
    assert result.returncode == 1
    what, hint = result.stderr.splitlines()
    assert what.startswith(f"error: {ca}/authority.json: the root in this file is for the trust domain 'other.example'")
    assert hint.startswith("hint: ")


def test_a_module_in_the_directory_one_stands_in_is_never_run(weft, tmp_path):
    here, mesh = tmp_path / "here", tmp_path / "mesh"
    here.mkdir()
    mesh.mkdir()
    for module in ("jwt", "click", "yaml", "grpc", "msgspec"):
        (here / f"{module}.py").write_text(f"open({str(here / 'was-run')!r}, 'w')\n")
    name = f"safe-{os.getpid()}"
    command = [sys.executable, "-P", "-m", "weft.cli", "up", str(mesh), "--name", name, "--detach"]
    try:
        done = subprocess.run(command, cwd=here, env=weft.environment, capture_output=True, text=True, timeout=60)
        assert not (here / "was-run").exists()
        assert done.returncode == 0, done.stderr
    finally:
        weft("down", name)


def test_detach_returns_when_the_proxies_have_every_pod():
    """Otherwise an immediate call could find no endpoint behind the service whose pod became ready last."""
    ready = MeshStatus("shop", "/mesh", 1, 2.0, objects=1)
    assert _is_over(ready)
    assert not _is_over(msgspec.structs.replace(ready, is_told=False))


MISSPELT = FAILS.replace("command:", "comand:")


def test_a_mesh_whose_only_workload_is_rejected_does_not_look_fine(weft, tmp_path):
    tmp_path.chmod(0o755)
    file = tmp_path / "mesh.yaml"
    file.write_text(MISSPELT)
    name = f"rejected-{os.getpid()}"
    lacking = "Workload shop/broken has no pods, because it is rejected"
    try:
        result = weft("up", tmp_path, "--name", name, "--detach")
        assert result.returncode == 1 and f"{lacking}; the mesh continues to run" in result.stderr
        for command in ("ps", "status"):
            result = weft(command, "--mesh", name)
            assert result.returncode == 1 and lacking in result.stderr
        file.write_text("kind: [")
        shown = eventually_blocking(lambda: weft("status", "--mesh", name), lambda it: "this is not YAML" in it.stdout)
        assert "comand" not in shown.stdout  # this error was about another text
        assert shown.returncode == 1 and lacking in shown.stderr
    finally:
        weft("down", name)
