"""A gateway on a real cluster, deployed as Istio's users do: called from outside the mesh, with HTTP and HTTPS, it
calls a service of the mesh with its own identity."""

import base64
import json
import socket
import ssl
import threading
import urllib.error
import urllib.request

import pytest
from tools.kube.cluster import INSIDE

from authority import Authority
from on_cluster import apps
from on_cluster.apps import SERVE, caller_of, get, of_kind, python, strict
from on_cluster.mesh import until

HOST = "shop.example.com"


def gateway(namespace):
    """As Istio's gateway chart writes it."""
    wanted = {
        "containers": [
            {
                "name": "istio-proxy",
                "image": "auto",
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "capabilities": {"drop": ["ALL"]},
                    "privileged": False,
                    "readOnlyRootFilesystem": True,
                    "runAsNonRoot": True,
                },
            }
        ],
        "serviceAccountName": "edge",
        "terminationGracePeriodSeconds": 30,
    }
    labels = {"app": "edge", "istio": "ingress", "sidecar.istio.io/inject": "true"}
    annotations = {"inject.istio.io/templates": "gateway"}
    pods = {"metadata": {"labels": labels, "annotations": annotations}, "spec": wanted}
    selector = {"matchLabels": {"app": "edge"}}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "edge", "namespace": namespace}},
        of_kind("apps/v1", "Deployment", namespace, "edge", {"replicas": 1, "selector": selector, "template": pods}),
        apps.service(namespace, "edge", ("http", 80, 80), ("https", 443, 443), type="NodePort"),
    ]


def edge(namespace, shop):
    servers = [
        {"port": {"number": 80, "name": "http", "protocol": "HTTP"}, "hosts": [HOST]},
        {
            "port": {"number": 443, "name": "https", "protocol": "HTTPS"},
            "hosts": [HOST],
            "tls": {"mode": "SIMPLE", "credentialName": "shop-cert"},
        },
    ]
    wanted = {"selector": {"istio": "ingress"}, "servers": servers}
    routes = {
        "hosts": [HOST],
        "gateways": [f"{namespace}/edge"],
        "http": [{"route": [{"destination": {"host": "web"}}]}],
    }
    return [
        of_kind("networking.istio.io/v1", "Gateway", namespace, "edge", wanted),
        of_kind("networking.istio.io/v1", "VirtualService", shop, "shop", routes),
    ]


def web(namespace):
    ready = {"httpGet": {"path": "/ready", "port": 8080}, "periodSeconds": 1}
    wanted = apps.template("web", apps.spec(python("app", SERVE, "8080", readinessProbe=ready)))
    return [
        of_kind("apps/v1", "Deployment", namespace, "web", {"replicas": 1, **wanted}),
        apps.service(namespace, "web", ("http", 80, 8080)),
        strict(namespace),
    ]


def secret(namespace, issued):
    data = {"tls.crt": issued.certificate, "tls.key": issued.key}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/tls",
        "metadata": {"name": "shop-cert", "namespace": namespace},
        "data": {name: base64.b64encode(held).decode() for name, held in data.items()},
    }


class Place:
    """A caller outside of the mesh, with a node port for each port of the gateway."""

    def __init__(self, cluster, namespace, authority):
        self.cluster, self.namespace, self.authority = cluster, namespace, authority
        ports = get(cluster, "service", namespace, "edge")["spec"]["ports"]
        self.ports = {each["name"]: each["nodePort"] for each in ports}

    def http(self, path="/"):
        asked = urllib.request.Request(f"http://{INSIDE}:{self.ports['http']}{path}", headers={"Host": HOST})
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(asked, timeout=10) as answer:
                return json.loads(answer.read())
        except (urllib.error.URLError, OSError):
            return None

    def certificate(self):
        """The certificate that the gateway presents to a client that trusts the authority; None without one."""
        context = ssl.create_default_context(cadata=self.authority.root.decode())
        try:
            with (
                socket.create_connection((INSIDE, self.ports["https"]), timeout=10) as plain,
                context.wrap_socket(plain, server_hostname=HOST) as secured,
            ):
                secured.sendall(f"GET / HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n".encode())
                assert secured.recv(4096).startswith(b"HTTP/1.1 200 ")
                return secured.getpeercert(binary_form=True)
        except OSError:
            return None


@pytest.fixture(scope="module")
def place(mesh):
    # The gateway's namespace admits no pod that requires more than it needs.
    namespace = mesh.namespace("edge", {"pod-security.kubernetes.io/enforce": "restricted"})
    shop, authority = mesh.namespace("shop"), Authority()
    mesh.install("--set", f"gateways.secretsIn=[{namespace}]")
    first = authority.issue(HOST)
    mesh.apply(*web(shop), *gateway(namespace), *edge(namespace, shop), secret(namespace, first))
    mesh.rolled_out(shop)
    mesh.rolled_out(namespace)
    found = Place(mesh.cluster, namespace, authority)
    found.first, found.shop = first, shop
    yield found
    mesh.kubectl("delete", "namespace", namespace, shop, "--wait=false")
    mesh.install()


def der(pem):
    return ssl.PEM_cert_to_DER_cert(pem.decode().split("-----END CERTIFICATE-----")[0] + "-----END CERTIFICATE-----\n")


def test_an_outside_http_caller_is_served_and_the_service_sees_the_gateways_identity(place):
    said = until(place.http)
    assert caller_of(said) == f"spiffe://cluster.local/ns/{place.namespace}/sa/edge"


def test_the_pod_is_a_proxy_alone_and_no_root(place):
    (pod,) = get(place.cluster, "pods", place.namespace, selector="app=edge")
    assert [each["name"] for each in pod["spec"]["containers"]] == ["istio-proxy"]
    assert "initContainers" not in pod["spec"]
    assert "security.istio.io/tlsMode" not in pod["metadata"]["labels"]
    assert pod["spec"]["containers"][0]["securityContext"]["runAsNonRoot"] is True


def test_a_changed_secret_is_shown_without_a_restart(place, mesh):
    assert until(place.certificate) == der(place.first.certificate)
    (before,) = get(place.cluster, "pods", place.namespace, selector="app=edge")
    second = place.authority.issue(HOST)
    mesh.apply(secret(place.namespace, second))
    until(lambda: place.certificate() == der(second.certificate))
    (after,) = get(place.cluster, "pods", place.namespace, selector="app=edge")
    assert (before["metadata"]["uid"], _restarts(before)) == (after["metadata"]["uid"], _restarts(after))


def _restarts(pod):
    return [each["restartCount"] for each in pod["status"]["containerStatuses"]]


def test_a_gateway_that_is_replaced_loses_no_request(place, mesh):
    until(place.http)
    mesh.kubectl("rollout", "restart", f"--namespace={place.namespace}", "deployment/edge")
    answers, going = [], threading.Event()

    def load():
        while not going.is_set():
            answers.append(place.http())

    caller = threading.Thread(target=load)
    caller.start()
    try:
        mesh.rolled_out(place.namespace, "deployment/edge")
        until(lambda: len(get(place.cluster, "pods", place.namespace, selector="app=edge")) == 1, timeout=120)
    finally:
        going.set()
        caller.join()
    assert answers and None not in answers


def test_proxy_status_lists_the_gateways_proxy(place, mesh):
    (pod,) = get(place.cluster, "pods", place.namespace, selector="app=edge")
    name = pod["metadata"]["name"]

    def synced():
        lines = [each for each in mesh.weft("proxy-status", "--kubernetes").splitlines() if name in each]
        assert lines and "SYNCED" in lines[0], lines
        return True

    until(synced)


def test_a_sidecar_is_not_given_the_gateways_secret(place, mesh):
    (pod,) = get(place.cluster, "pods", place.shop, selector="app=web")
    said = mesh.weft("proxy-config", "secret", f"{pod['metadata']['name']}.{place.shop}", "--kubernetes")
    assert "shop-cert" not in said
