"""Many pods on one machine: all become ready without a restart, although they compete for the cores, and can call each
other. `make test-pods` runs this test with 300 pods."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from e2e.mesh import unique_name
from e2e.objects import NAMESPACE, service, text

PODS = int(os.environ.get("WEFT_PODS", "24"))  # in a mesh of at most 20 pods, progress would name each
HOSTS = [f"app{number}" for number in range(6)]

pytestmark = pytest.mark.timeout(120 + 5 * PODS)  # seconds; on two cores a pod takes half of one

SERVER = """
import http.server, os
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = os.environ["POD_NAME"].encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_): pass
http.server.ThreadingHTTPServer(("", 8080), Handler).serve_forever()
"""
CALLS = """
import sys, urllib.request
for host in sys.argv[1:]:
    print(urllib.request.urlopen(f"http://{host}/", timeout=30).read().decode())
"""


def app(name, replicas):
    return {
        "apiVersion": "weft.dev/v1alpha1",
        "kind": "Workload",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"app": name}},
        "spec": {
            "command": [sys.executable, "-c", SERVER],
            "replicas": replicas,
            "ports": [{"name": "http", "port": 8080}],
            "readiness": {"http": {"port": 8080, "path": "/"}},
        },
    }


def weft(*arguments, **options):
    command = [sys.executable, "-m", "weft.cli", *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, **options)


@pytest.fixture(scope="module")
def started(tmp_path_factory):
    """The mesh's name, and the result of `weft up --detach`."""
    directory, name = tmp_path_factory.mktemp("many"), unique_name("many")
    directory.chmod(0o755)
    for number, host in enumerate(HOSTS):
        replicas = len(range(number, PODS, len(HOSTS)))
        port = {"name": "http", "port": 80, "targetPort": 8080}
        (directory / f"{host}.yaml").write_text(text(app(host, replicas), service(host, port)))
    free, begun = available_memory(), time.monotonic()
    try:
        result = weft("up", directory, "--name", name, "--detach")
        took, used = time.monotonic() - begun, free - available_memory()
        figures = f"after {took:.0f} s; the mesh uses {used >> 20} MB"
        sys.stdout.write(f"{PODS} pods: exit code {result.returncode} {figures}\n{result.stderr}")
        yield name, result
    finally:
        weft("down", name)


def available_memory():
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))


def test_all_pods_become_ready_and_none_is_restarted(started):
    name, result = started
    assert result.returncode == 0, result.stderr
    pods = json.loads(weft("ps", name, "-o", "json").stdout)
    states = Counter((pod["phase"], pod["sync"], pod["restarts"], pod["proxy_restarts"]) for pod in pods)
    assert states == {("Ready", "SYNCED", 0, 0): PODS}


def test_progress_is_printed_as_counts_instead_of_names(started):
    _, result = started
    lines = result.stderr.splitlines()
    counts = [line for line in lines if re.fullmatch(rf"\d+ of {PODS} pods are ready", line)]
    assert 1 <= len(counts) <= 20 and counts[-1] == f"{PODS} of {PODS} pods are ready"
    assert f"all {PODS} pods are ready or completed" in lines
    assert not [line for line in lines if line.endswith(": Ready")]


@pytest.mark.parametrize("caller", HOSTS)
def test_each_service_responds_to_each(started, caller):
    name, _ = started
    called = weft("exec", "--mesh", name, f"{caller}-0", "--", "python3", "-c", CALLS, *HOSTS)
    assert [line.rpartition("-")[0] for line in called.stdout.splitlines()] == HOSTS, called.stderr
