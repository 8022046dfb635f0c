"""One small real mesh for all tests of commands that query a running mesh: two pods that print, and a job."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

MESH = """\
apiVersion: weft.dev/v1alpha1
kind: Workload
metadata: {name: talker, namespace: shop, labels: {app: talker}}
spec:
  command: [sh, -c, 'echo "$POD_NAME speaks"; while :; do sleep 1; echo tick; done']
  env: {GREETING: hello}
  replicas: 2
---
apiVersion: weft.dev/v1alpha1
kind: Workload
metadata: {name: job, namespace: shop, labels: {app: job}}
spec:
  command: [sh, -c, 'echo done']
  restart: Never
"""


@pytest.fixture(scope="session")
def weft():
    """Runs the command line as a user does: a process, with its own run directory for meshes."""
    run_directory = tempfile.mkdtemp(prefix="weft-cli-", dir="/tmp")  # short enough for the path of a Unix socket
    Path(run_directory).chmod(0o755)
    inherited = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    environment = {**inherited, "PYTHONPATH": os.pathsep.join(sys.path), "WEFT_RUN_DIR": run_directory}

    def run(*arguments, **options):
        command = [sys.executable, "-m", "weft.cli", *map(str, arguments)]
        options = {"capture_output": True, "text": True, "timeout": 60, "check": False, **options}
        return subprocess.run(command, env=environment, **options)

    run.environment = environment
    yield run
    run("down", "--all")
    shutil.rmtree(run_directory, ignore_errors=True)


@pytest.fixture(scope="session")
def mesh_directory(tmp_path_factory):
    directory = tmp_path_factory.mktemp("mesh")
    directory.chmod(0o755)
    (directory / "mesh.yaml").write_text(MESH)
    return directory


@pytest.fixture(scope="session")
def mesh(weft, mesh_directory):
    """The name of a running mesh."""
    name = f"cli-{os.getpid()}"
    started = weft("up", mesh_directory, "--name", name, "--detach")
    assert started.returncode == 0, started.stderr
    yield name
    assert weft("down", name).returncode == 0


@pytest.fixture
def cluster_cli(own_api_server, weft):
    """The command line with a real API server on which weft is not installed. What a test installs is removed
    afterwards."""
    from cli.installing import Installed

    found = Installed(own_api_server, weft)
    found.clean()
    yield found
    found.clean()
