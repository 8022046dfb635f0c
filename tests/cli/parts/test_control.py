import asyncio
import os
import re
import signal
import socket
import stat
import subprocess
import sys

import grpc
import pytest
from click.testing import CliRunner
from envoy.service.discovery.v3 import ads_pb2_grpc, discovery_pb2
from tools.ports import free_port

from ca import forging, making
from weft.ca.client import CertificateClient
from weft.ca.signed_tokens import TokenIssuer
from weft.ca.signer import SigningRefused
from weft.cli.main import app
from weft.demo import shop

CLUSTER = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
ROUTE = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"


def start(*arguments):
    command = [sys.executable, "-m", "weft.cli", "control", *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


@pytest.fixture
def port():
    return free_port()


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
        assert process.wait(timeout=60) == 0
    finally:
        process.kill()
        process.communicate()


def test_the_domain_decides_which_copy_of_an_object_is_valid(tmp_path, port):
    route = """
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: web, namespace: shop}
spec: {hosts: [%s], http: [{name: %s, route: [{destination: {host: web}}]}]}
"""
    (tmp_path / "0.yaml").write_text(
        "{apiVersion: v1, kind: Service, metadata: {name: web, namespace: shop}, spec: {ports: [{name: http, port: 80}]}}"
    )
    # In this domain the first copy contains a host twice, and is rejected.
    (tmp_path / "1.yaml").write_text(route % ("web, web.shop.svc.mesh.example", "the-first"))
    (tmp_path / "2.yaml").write_text(route % ("web", "the-second"))
    process = start("--config", tmp_path, "--listen", f"127.0.0.1:{port}", "--domain", "mesh.example")
    try:
        assert f"serving xDS on 127.0.0.1:{port}" in process.stderr.readline()
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            node = {"id": "sidecar~10.0.0.1~probe-0.shop~shop.svc.mesh.example"}
            request = discovery_pb2.DiscoveryRequest(node=node, type_url=ROUTE, resource_names=["80"])
            stream = ads_pb2_grpc.AggregatedDiscoveryServiceStub(channel).StreamAggregatedResources(
                iter([request]), timeout=20, wait_for_ready=True
            )
            routes = str(next(stream).resources)
        assert "the-second" in routes and "the-first" not in routes
    finally:
        process.kill()
        process.communicate()


def test_an_address_in_use_is_an_error():
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
def test_an_invalid_address_is_an_error(tmp_path, address):
    process = start("--config", tmp_path, "--listen", address)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 2
    assert said == (
        f"error: `{address}` is not an address to serve on\n"
        "hint: give HOST:PORT or unix:/path: --listen 127.0.0.1:15010\n"
    )


def test_reports_a_missing_directory(tmp_path):
    process = start("--config", tmp_path / "no")
    _, said = process.communicate(timeout=30)
    assert process.returncode == 1
    assert said.startswith(f"error: {tmp_path / 'no'} is not a directory")


def test_on_a_cluster_a_history_directory_is_an_error(tmp_path):
    process = start("--kubernetes", "--history", tmp_path / "past")
    _, said = process.communicate(timeout=30)
    assert process.returncode == 2 and not (tmp_path / "past").exists()
    assert said.startswith("error: --history is for a mesh from files\nhint: ")


@pytest.fixture
def issuer(tmp_path):
    """An issuer of tokens, and the file with its public key."""
    made = TokenIssuer(issuer="https://issuer.example")
    path = tmp_path / "issuer.pem"
    path.write_bytes(forging.public_pem(made._key))
    return made, path


def test_serves_certificates_to_those_whose_tokens_are_trusted(tmp_path, port, issuer):
    tokens, keys = issuer
    process = start(
        *("--config", shop.source(), "--listen", f"unix:{tmp_path}/xds.sock"),
        *("--ca", tmp_path / "ca", "--ca-listen", f"127.0.0.1:{port}"),
        *("--token-keys", keys, "--token-issuer", "https://issuer.example", "--clock-skew", "5s"),
    )
    try:
        assert "serving xDS on" in process.stderr.readline()
        assert f"serving the CA of cluster.local on 127.0.0.1:{port}" in process.stderr.readline()

        async def ask():
            client = CertificateClient(f"127.0.0.1:{port}", (tmp_path / "ca" / "bundle.pem").read_text())
            try:
                with pytest.raises(SigningRefused):
                    await client.create(TokenIssuer().issue(making.CALLER), making.csr())
                return await client.create(tokens.issue(making.CALLER), making.csr())
            finally:
                await client.close()

        issued = asyncio.run(ask())
        assert 4 <= (issued.issued - issued.not_before).total_seconds() <= 6
        assert making.verifies(issued.chain, [(tmp_path / "ca" / "bundle.pem").read_text()])
        told = CliRunner().invoke(app, ["ca", "show", str(tmp_path / "ca")]).stderr
        assert re.search(
            r"^issued 1 certificate since the CA started; rejected requests: 1 × token-\w+$", told, re.MULTILINE
        ), told
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 0
    finally:
        process.kill()
        process.communicate()


def test_without_keys_for_tokens_no_ca_is_served_and_a_message_is_printed(tmp_path):
    process = start("--config", shop.source(), "--listen", f"unix:{tmp_path}/xds.sock", "--ca", tmp_path / "ca")
    try:
        process.stderr.readline()
        assert "no CA is served: tokens cannot be checked without --token-keys" in process.stderr.readline()
        assert not (tmp_path / "ca").exists()
        # Proxies are other users than the control plane.
        assert stat.S_IMODE((tmp_path / "xds.sock").stat().st_mode) == 0o666
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 0
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(
    ("arguments", "said", "code"),
    [
        (("--token-keys", "issuer.pem"), "only from a known issuer", 2),
        (("--token-keys", "no.pem", "--token-issuer", "x"), "no.pem: the file cannot be read", 1),
        (("--ca-listen", "nope"), "`nope` is not an address", 2),
        (("--clock-skew", "soon"), "`soon` is not a duration", 2),
        (("--token-keys", "issuer.pem", "--token-issuer", "x", "--trust-domain", "A B"), "is not a trust domain", 1),
    ],
)
def test_an_invalid_ca_is_an_error(tmp_path, issuer, arguments, said, code):
    paths = [str(tmp_path / each) if each.endswith(".pem") else each for each in arguments]
    process = start("--config", tmp_path, "--listen", f"unix:{tmp_path}/xds.sock", "--ca", tmp_path / "ca", *paths)
    _, heard = process.communicate(timeout=30)
    assert process.returncode == code
    assert said in heard
    assert "hint: " in heard


def test_an_address_of_the_ca_in_use_is_an_error(tmp_path, issuer):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        process = start(
            *("--config", tmp_path, "--listen", f"unix:{tmp_path}/xds.sock", "--ca", tmp_path / "ca"),
            *("--ca-listen", f"127.0.0.1:{taken.getsockname()[1]}"),
            *("--token-keys", issuer[1], "--token-issuer", "x"),
        )
        _, heard = process.communicate(timeout=30)
    assert process.returncode == 1
    assert "cannot serve the CA" in heard
    assert "hint: choose another address" in heard
