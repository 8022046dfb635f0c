"""Pods' identities with a real kubelet: volume, token, TokenReview, certificate; an agent that ends and comes back; and
pods whose redirect the agent sets up, as on clusters that allow no container to change its network.

A revision of its own is installed for it, so that a mesh that somebody has on the same cluster is left alone.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tools.kube.process import Failed, wait_for

from tools import image

REVISION = "identity"
IMAGE = "docker.io/library/weft:identity"
SYSTEM = "istio-system"
NAMESPACE, INJECTED = f"identity-{os.getpid()}", f"redirected-{os.getpid()}"
MOUNT = "/var/run/secrets/workload-spiffe-uds"
PYTHON = "/usr/bin/python3.11"
# Prints what SDS brings, and calls again when the stream ends, as Envoy does.
FOLLOW = f"""
import grpc, time
from cryptography import x509
from envoy.config.core.v3 import base_pb2
from envoy.extensions.transport_sockets.tls.v3 import secret_pb2
from envoy.service.discovery.v3 import discovery_pb2 as discovery

TYPE = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"
METHOD = "/envoy.service.secret.v3.SecretDiscoveryService/StreamSecrets"

def requests():
    node = base_pb2.Node(id="test")
    yield discovery.DiscoveryRequest(node=node, type_url=TYPE, resource_names=["default", "ROOTCA"])
    time.sleep(1e6)

while True:
    try:
        with grpc.insecure_channel("unix:{MOUNT}/socket") as channel:
            encode, decode = discovery.DiscoveryRequest.SerializeToString, discovery.DiscoveryResponse.FromString
            for answer in channel.stream_stream(METHOD, encode, decode)(requests()):
                for each in answer.resources:
                    secret = secret_pb2.Secret.FromString(each.value)
                    if secret.name == "default":
                        leaf = x509.load_pem_x509_certificates(secret.tls_certificate.certificate_chain.inline_bytes)[0]
                        names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
                        print(*names.get_values_for_type(x509.UniformResourceIdentifier), leaf.serial_number, flush=True)
    except grpc.RpcError as error:
        print("lost:", error.code().name, flush=True)
        time.sleep(0.2)
"""
SERVE = "import http.server as h; h.test(h.SimpleHTTPRequestHandler, port=8080)"
# Only a proxy on the way says how long it took.
FETCH = "import urllib.request as u; a = u.urlopen('http://web/'); print('x-envoy-upstream-service-time' in a.headers)"
BARE = {
    "runAsNonRoot": True,
    "runAsUser": 1337,
    "runAsGroup": 1337,
    "readOnlyRootFilesystem": True,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
}


def weft(cluster, *arguments):
    command = [sys.executable, "-m", "weft.cli", *arguments, "--kubeconfig", str(cluster.kubeconfig)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=400, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def mesh(cluster, tmp_path_factory):
    cluster.load_image(image.build(tmp_path_factory.mktemp("image") / "weft.tar", name=IMAGE))
    chosen = {"image": IMAGE, "imagePullPolicy": "Never", "injection.redirectBy": "node"}
    settings = [part for name, value in chosen.items() for part in ("--set", f"{name}={value}")]
    try:
        weft(cluster, "install", "--revision", REVISION, *settings)
        labels = {"istio.io/rev": REVISION}
        cluster.apply(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": INJECTED, "labels": labels}},
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "web", "namespace": NAMESPACE}},
        )
        for each in (NAMESPACE, INJECTED):
            there = lambda each=each: "default" in cluster.kubectl("-n", each, "get", "serviceaccounts")  # noqa: E731
            wait_for(there, f"an account in {each}", timeout=60)
        yield cluster
    finally:
        cluster.kubectl("delete", "namespace", NAMESPACE, INJECTED, "--ignore-not-found")
        weft(cluster, "uninstall", "--revision", REVISION, "--yes")


def with_volume(name, command, account="web", **security):
    container = {
        "name": "main",
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "command": [PYTHON, "-c", command],
        "securityContext": {**BARE, **security},
        "volumeMounts": [{"name": "workload-socket", "mountPath": MOUNT, "readOnly": True}],
    }
    spec = {
        "serviceAccountName": account,
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 1,
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
        "volumes": [{"name": "workload-socket", "csi": {"driver": f"{REVISION}.csi.weft.dev", "readOnly": True}}],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec}


def logs(cluster, name, *more, namespace=NAMESPACE):
    try:
        return cluster.kubectl("-n", namespace, "logs", name, *more)
    except Failed:
        return ""


def certificates(cluster, name):
    """(identity, serial) as they came."""
    return [line.split() for line in logs(cluster, name).splitlines() if line.startswith("spiffe:")]


def agent(cluster):
    """The name of its pod, once it serves."""
    cluster.kubectl("-n", SYSTEM, "rollout", "status", f"daemonset/weft-node-{REVISION}", "--timeout=120s")
    chosen = ("-l", f"app=weft-node,istio.io/rev={REVISION}", "--field-selector=status.phase=Running")
    return cluster.kubectl("-n", SYSTEM, "get", "pods", *chosen, "-o", "jsonpath={.items[*].metadata.name}").split()[-1]


def end_agent(cluster):
    before = agent(cluster)
    cluster.kubectl("-n", SYSTEM, "delete", "pod", before)
    wait_for(lambda: agent(cluster) != before, "another agent", timeout=120)


def test_a_pod_gets_the_certificate_of_its_account_and_an_agent_that_is_replaced_serves_the_same_one(mesh):
    mesh.apply(with_volume("web", FOLLOW))
    wait_for(lambda: certificates(mesh, "web"), "a certificate", timeout=90)
    (first,) = certificates(mesh, "web")
    assert first[0] == f"spiffe://cluster.local/ns/{NAMESPACE}/sa/web"
    end_agent(mesh)
    wait_for(lambda: len(certificates(mesh, "web")) > 1, "the certificate again", timeout=90)
    assert set(map(tuple, certificates(mesh, "web"))) == {tuple(first)}
    assert "lost: UNAVAILABLE" in logs(mesh, "web")
    # It goes at once, and with it the directory that kubelet showed it.
    uid = json.loads(mesh.kubectl("-n", NAMESPACE, "get", "pod", "web", "-o", "json"))["metadata"]["uid"]
    mesh.kubectl("-n", NAMESPACE, "delete", "pod", "web", "--timeout=60s")
    assert f"{NAMESPACE}/web: gone" in logs(mesh, agent(mesh), namespace=SYSTEM)
    volumes = Path(f"/proc/{mesh.holder.pid()}/root/var/lib/kubelet/pods", uid, "volumes/kubernetes.io~csi")
    wait_for(lambda: not volumes.exists() or not list(volumes.iterdir()), "an end of the volume", timeout=60)


def test_another_user_of_a_pod_cannot_open_the_socket(mesh):
    connect = f"import socket; socket.socket(socket.AF_UNIX).connect('{MOUNT}/socket')"
    mesh.apply(with_volume("other", connect, runAsUser=1000, runAsGroup=1000))
    wait_for(lambda: "PermissionError" in logs(mesh, "other"), "a refusal", timeout=90)
    mesh.kubectl("-n", NAMESPACE, "delete", "pod", "other", "--wait=false")


def test_kubelets_own_end_and_return_disturbs_no_pod(mesh):
    mesh.apply(with_volume("calm", FOLLOW))
    wait_for(lambda: certificates(mesh, "calm"), "a certificate", timeout=90)
    before = logs(mesh, "calm")
    mesh.restart_kubelet()
    mesh.apply(with_volume("later", FOLLOW, account="default"))
    wait_for(lambda: certificates(mesh, "later"), "a certificate of a new pod", timeout=120)
    assert certificates(mesh, "later")[0][0].endswith("/sa/default")
    assert logs(mesh, "calm") == before  # the stream is the same
    mesh.kubectl("-n", NAMESPACE, "delete", "pod", "calm", "later", "--wait=false")


def test_pods_that_may_change_no_network_are_redirected_by_the_agent_and_talk_through_their_proxies(mesh):
    web = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web", "namespace": INJECTED},
        "spec": {"selector": {"app": "web"}, "ports": [{"name": "http", "port": 80, "targetPort": 8080}]},
    }

    def app(name, script):
        main = {
            "name": "main",
            "image": IMAGE,
            "imagePullPolicy": "Never",
            "command": [PYTHON, "-c", script],
            "workingDir": "/usr",
            "securityContext": {"runAsUser": 1000},  # the image's own user is the proxy's, which is never redirected
        }
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": INJECTED, "labels": {"app": name}},
            "spec": {"containers": [main], "terminationGracePeriodSeconds": 1},
        }

    mesh.apply(web, app("web", SERVE), app("client", "import time; time.sleep(1e6)"))
    mesh.kubectl("-n", INJECTED, "wait", "--for=condition=Ready", "pod/web", "pod/client", "--timeout=180s")
    spec = json.loads(mesh.kubectl("-n", INJECTED, "get", "pod", "web", "-o", "json"))["spec"]
    containers = [*spec["initContainers"], *spec["containers"]]
    assert containers[0]["name"] == "istio-validation"
    assert not [each for each in containers if each.get("securityContext", {}).get("capabilities", {}).get("add")]

    def fetched():
        try:
            return "True" in mesh.kubectl("-n", INJECTED, "exec", "client", "-c", "main", "--", PYTHON, "-c", FETCH)
        except Failed:
            return False

    wait_for(fetched, "an answer through the proxies", timeout=90)
    said = logs(mesh, agent(mesh), namespace=SYSTEM)
    assert (
        f"{INJECTED}/web: its traffic is redirected" in said and f"{INJECTED}/client: its traffic is redirected" in said
    )
