"""Clients of the control plane without an agent: gRPC's own xDS client in a pod without a proxy, on the port without
TLS if it is configured, and on the port with TLS with a certificate or a token."""

import json

import pytest

from on_cluster import apps
from on_cluster.apps import python
from on_cluster.mesh import NAMESPACE, until

GREETER = """
import concurrent.futures, os, grpc
class Greeter(grpc.GenericRpcHandler):
    def service(self, details):
        return grpc.unary_unary_rpc_method_handler(lambda request, context: os.environ["HOSTNAME"].encode())
server = grpc.server(concurrent.futures.ThreadPoolExecutor(2), handlers=(Greeter(),))
server.add_insecure_port("0.0.0.0:50051")
server.start()
server.wait_for_termination()
"""

# Its bootstrap is read when it is first used. The script does what an agent would do: it gets a certificate for a key,
# and writes both to files.
CLIENT = """
import asyncio, json, os, pathlib, sys
target, bootstrap, asked = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
os.environ["GRPC_XDS_BOOTSTRAP_CONFIG"] = bootstrap
os.environ["GRPC_EXPERIMENTAL_XDS_BOOTSTRAP_CALL_CREDS"] = "true"
import grpc
from weft.ca.client import CertificateClient
from weft.model.identity import parse_identity
from weft.node.key import Key

async def certify():
    roots, token = (pathlib.Path("/var/run/secrets/mesh", name).read_text() for name in ("root-cert.pem", "token"))
    client, key = CertificateClient(asked["address"], roots), Key()
    issued = await client.create(token, key.request(parse_identity(asked["identity"])))
    await client.close()
    pathlib.Path("/dev/shm/chain.pem").write_text("".join(issued.chain))
    pathlib.Path("/dev/shm/key.pem").write_bytes(key.secret_pem())

if asked:
    asyncio.run(certify())
try:
    print("ok", grpc.insecure_channel(target).unary_unary("/e2e.Greeter/Greet")(b"", timeout=20).decode())
except grpc.RpcError as error:
    print("failed", error.code().name, error.details())
"""
SECRETS = "/var/run/secrets/mesh"
ROOTS = {"ca_certificate_file": f"{SECRETS}/root-cert.pem"}


@pytest.fixture(scope="module")
def namespace(mesh, canary):
    """With `greeter`, a pod of the mesh, and `client`, a pod outside of it."""
    name = mesh.namespace("direct", {"istio.io/rev": canary})
    until(lambda: apps.get(mesh.cluster, "configmaps", name, selector="istio.io/config=true"))
    token = {"serviceAccountToken": {"path": "token", "audience": "istio-ca", "expirationSeconds": 3600}}
    sources = [token, {"configMap": {"name": "istio-ca-root-cert"}}]
    mounted = [{"name": "mesh", "mountPath": SECRETS, "readOnly": True}]
    mesh.apply(
        apps.pod(name, "greeter", python("app", GREETER)),
        apps.service(name, "greeter", ("grpc", 50051, 50051)),
        apps.pod(
            name,
            "client",
            python("app", "import time; time.sleep(1e6)", volumeMounts=mounted),
            labels={"sidecar.istio.io/inject": "false"},
            volumes=[{"name": "mesh", "projected": {"sources": sources}}],
        ),
    )
    mesh.wait(name, "pod/greeter", "pod/client")
    yield name
    mesh.kubectl("delete", "namespace", name, "--timeout=120s")


@pytest.fixture
def greet(mesh, namespace, canary):
    """The greeting that the client gets from the service, resolved at this port of the control plane."""

    def greet(port, credentials, host=f"istiod-{canary}.{NAMESPACE}.svc", pod="client", certified=False, **more):
        server = {"server_uri": f"{host}:{port}", "channel_creds": [credentials], "server_features": ["xds_v3"], **more}
        node = {"id": f"sidecar~127.0.0.1~{pod}.{namespace}~{namespace}.svc.cluster.local",
                "metadata": {"GENERATOR": "grpc", "NAMESPACE": namespace}}  # fmt: skip
        identity = f"spiffe://cluster.local/ns/{namespace}/sa/default"
        asked = {"address": f"{host}:15012", "identity": identity} if certified else {}
        bootstrap = json.dumps({"xds_servers": [server], "node": node})
        words = [f"xds:///greeter.{namespace}.svc.cluster.local:50051", bootstrap, json.dumps(asked)]
        into = ["exec", f"--namespace={namespace}", "client", "--", "python3", "-c", CLIENT]
        return mesh.kubectl(*into, *words).strip()

    return greet


TOKEN = [{"type": "jwt_token_file", "config": {"jwt_token_file": f"{SECRETS}/token"}}]


def certificate():
    return {"certificate_file": "/dev/shm/chain.pem", "private_key_file": "/dev/shm/key.pem"}


def test_grpcs_own_client_is_served_without_tls_if_configured(greet):
    until(lambda: greet(15010, {"type": "insecure"}) == "ok greeter")


def test_without_the_setting_the_port_without_tls_is_closed(mesh, greet):
    """At the pods' own addresses: what kube-proxy does with a port that the Service does not list is its own matter."""
    pods = apps.get(mesh.cluster, "pods", NAMESPACE, selector="app=istiod,istio.io/rev=default")
    serving = [each["status"]["podIP"] for each in pods if each["status"]["phase"] == "Running"]
    assert serving
    for address in serving:
        said = greet(15010, {"type": "insecure"}, host=address)
        assert said.startswith("failed UNAVAILABLE") and "Connection refused" in said


def test_grpcs_own_client_is_served_with_the_certificate_of_its_pod(greet):
    assert greet(15012, {"type": "tls", "config": {**ROOTS, **certificate()}}, certified=True) == "ok greeter"


def test_grpcs_own_client_is_served_with_the_token_of_its_pod(greet):
    assert greet(15012, {"type": "tls", "config": ROOTS}, call_creds=TOKEN) == "ok greeter"


def test_a_client_without_certificate_or_token_gets_an_error_that_names_both(greet):
    said = greet(15012, {"type": "tls", "config": ROOTS})
    assert said.startswith("failed UNAVAILABLE") and "a certificate of the mesh or a bearer token is required" in said


def test_a_certificate_is_not_accepted_for_a_pod_that_does_not_exist(greet, namespace):
    said = greet(15012, {"type": "tls", "config": {**ROOTS, **certificate()}}, pod="nobody", certified=True)
    assert (
        said.startswith("failed UNAVAILABLE") and f"pod {namespace}/nobody is not known to this control plane" in said
    )
