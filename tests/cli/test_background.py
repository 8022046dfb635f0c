import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.root

FAILS = """\
apiVersion: weft.dev/v1alpha1
kind: Workload
metadata: {name: broken, namespace: shop}
spec: {command: [sh, -c, 'exit 3'], restart: Never}
"""

NEVER_READY = """\
apiVersion: weft.dev/v1alpha1
kind: Workload
metadata: {name: deaf, namespace: shop}
spec: {command: [sleep, '600'], readiness: {tcp: {port: 9}}}
"""


def test_returns_once_all_pods_are_ready_and_says_what_happened_meanwhile(weft, mesh_directory):
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


def test_says_what_failed_for_good_and_lets_the_mesh_go_on(weft, tmp_path):
    tmp_path.chmod(0o755)
    (tmp_path / "mesh.yaml").write_text(FAILS)
    name = f"fails-{os.getpid()}"
    try:
        result = weft("up", tmp_path, "--name", name, "--detach")
        assert result.returncode == 1
        assert "error: broken-0 (Failed); the mesh goes on" in result.stderr
        assert weft("status", "--mesh", name).returncode == 0
    finally:
        weft("down", name)


def test_is_patient_only_so_long(weft, tmp_path):
    tmp_path.chmod(0o755)
    (tmp_path / "mesh.yaml").write_text(NEVER_READY)
    name = f"slow-{os.getpid()}"
    try:
        result = weft("up", tmp_path, "--name", name, "--detach", "--patience", "8")
        assert result.returncode == 1
        assert "error: deaf-0 (Running); the mesh goes on" in result.stderr
        assert f"cat {weft.environment['WEFT_RUN_DIR']}/{name}.log" in result.stderr
    finally:
        weft("down", name)


def test_a_mesh_that_is_ended_while_it_starts_is_said_to_be(weft, tmp_path):
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
        assert "error: the mesh ended with code 0" in said and "Traceback" not in said
        assert starting.wait() == 1
    finally:
        weft("down", name)
        starting.kill()
