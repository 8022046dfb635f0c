import os
import signal
import socket
import subprocess
import sys

import grpc
import pytest
from envoy.service.discovery.v3 import ads_pb2_grpc, discovery_pb2

from weft.cli import shop

CLUSTER = "type.googleapis.com/envoy.config.cluster.v3.Cluster"


def start(*arguments):
    command = [sys.executable, "-m", "weft.cli", "control", *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


@pytest.fixture
def port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def test_serves_a_directory_to_any_xds_client_and_ends_on_sigterm(port):
    process = start("--config", shop.source(), "--listen", f"127.0.0.1:{port}")
    try:
        assert f"serving xDS on 127.0.0.1:{port}" in process.stderr.readline()
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            node = {"id": "sidecar~10.0.0.1~probe-0.shop~shop.svc.cluster.local"}
            request = discovery_pb2.DiscoveryRequest(node=node, type_url=CLUSTER)
            stream = ads_pb2_grpc.AggregatedDiscoveryServiceStub(channel).StreamAggregatedResources(
                iter([request]), timeout=20, wait_for_ready=True
            )
            clusters = str(next(stream).resources)
        assert "outbound|80|v2|payments.shop.svc.cluster.local" in clusters
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=10) == 0
    finally:
        process.kill()
        process.communicate()


def test_says_when_its_address_is_taken():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        process = start("--config", shop.source(), "--listen", f"127.0.0.1:{taken.getsockname()[1]}")
        _, said = process.communicate(timeout=30)
    assert process.returncode == 1
    assert "cannot serve xDS" in said
    assert "hint: choose another address" in said
    assert all(line.startswith(("error: ", "hint: ")) for line in said.splitlines())  # gRPC's own lines are not here


@pytest.mark.parametrize("address", ["nope", ":15010", "127.0.0.1:", "127.0.0.1:http", "127.0.0.1:70000", "unix:"])
def test_says_when_its_address_is_none(tmp_path, address):
    process = start("--config", tmp_path, "--listen", address)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 2
    assert said == (
        f"error: `{address}` is not an address to serve on\n"
        "hint: give HOST:PORT or unix:/path: --listen 127.0.0.1:15010\n"
    )


def test_says_when_there_is_no_directory(tmp_path):
    process = start("--config", tmp_path / "no")
    _, said = process.communicate(timeout=30)
    assert process.returncode == 1
    assert said.startswith(f"error: {tmp_path / 'no'} is not a directory")
