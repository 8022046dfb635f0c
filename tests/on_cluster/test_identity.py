"""Pods' identities with a real kubelet: volume, token, TokenReview, certificate; and a restarted agent: the one of
the second revision, so that no other test waits for it."""

import json
import os
from pathlib import Path

import pytest
from tools.kube.process import Failed

from on_cluster.admission import IMAGE
from on_cluster.mesh import NAMESPACE as SYSTEM
from on_cluster.mesh import until

REVISION = "canary"
NAMESPACE = f"identity-{os.getpid()}"
MOUNT = "/var/run/secrets/workload-spiffe-uds"
PYTHON = "/usr/bin/python3.11"
# Prints what SDS sends, and reconnects when the stream ends, as Envoy does.
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
BARE = {
    "runAsNonRoot": True,
    "runAsUser": 1337,
    "runAsGroup": 1337,
    "readOnlyRootFilesystem": True,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
}


@pytest.fixture(scope="module")
def node(mesh, canary):
    """The cluster, with a namespace without injection: its pods only have the volume."""
    mesh.cluster.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "web", "namespace": NAMESPACE}},
    )
    there = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts"
    until(lambda: "default" in {each["metadata"]["name"] for each in mesh.cluster.api.request("GET", there)["items"]})
    yield mesh.cluster
    mesh.kubectl("delete", "namespace", NAMESPACE)


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
    """(identity, serial) in the order of arrival."""
    return [line.split() for line in logs(cluster, name).splitlines() if line.startswith("spiffe:")]


def agent(cluster):
    """The name of the agent's pod, once it serves."""
    cluster.kubectl("-n", SYSTEM, "rollout", "status", f"daemonset/weft-node-{REVISION}", "--timeout=120s")
    chosen = ("-l", f"app=weft-node,istio.io/rev={REVISION}", "--field-selector=status.phase=Running")
    return cluster.kubectl("-n", SYSTEM, "get", "pods", *chosen, "-o", "jsonpath={.items[*].metadata.name}").split()[-1]


def end_agent(cluster):
    before = agent(cluster)
    cluster.kubectl("-n", SYSTEM, "delete", "pod", before)
    until(lambda: agent(cluster) != before, timeout=120)


def test_a_pod_gets_the_certificate_of_its_account_and_an_agent_that_is_replaced_serves_the_same_one(node):
    node.apply(with_volume("web", FOLLOW))
    until(lambda: certificates(node, "web"), timeout=90)
    (first,) = certificates(node, "web")
    assert first[0] == f"spiffe://cluster.local/ns/{NAMESPACE}/sa/web"
    end_agent(node)
    until(lambda: len(certificates(node, "web")) > 1, timeout=90)
    assert set(map(tuple, certificates(node, "web"))) == {tuple(first)}
    assert "lost: UNAVAILABLE" in logs(node, "web")
    # The socket's directory is removed at once with the pod.
    uid = json.loads(node.kubectl("-n", NAMESPACE, "get", "pod", "web", "-o", "json"))["metadata"]["uid"]
    node.kubectl("-n", NAMESPACE, "delete", "pod", "web", "--timeout=60s")
    assert f"{NAMESPACE}/web: removed its sockets" in logs(node, agent(node), namespace=SYSTEM)
    volumes = Path(f"/proc/{node.holder.pid()}/root/var/lib/kubelet/pods", uid, "volumes/kubernetes.io~csi")
    until(lambda: not volumes.exists() or not list(volumes.iterdir()), timeout=60)


def test_another_user_of_a_pod_cannot_open_the_socket(node):
    connect = f"import socket; socket.socket(socket.AF_UNIX).connect('{MOUNT}/socket')"
    node.apply(with_volume("other", connect, runAsUser=1000, runAsGroup=1000))
    until(lambda: "PermissionError" in logs(node, "other"), timeout=90)
    node.kubectl("-n", NAMESPACE, "delete", "pod", "other", "--wait=false")
