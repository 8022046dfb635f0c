"""The cluster has what the mesh needs: it runs pods like any other, and does not change the machine."""

import base64
import json
import os
import urllib.request

import pytest
from tools.kube.certificates import Authority
from tools.kube.holder import INSIDE
from tools.kube.process import Failed, wait_for

from on_cluster import machine
from on_cluster.objects import container, pod, service

# A permanent cluster may still be removing the namespace of the previous run.
NAMESPACE = f"cluster-test-{os.getpid()}"
SERVE = "import sys, http.server as h; h.test(h.SimpleHTTPRequestHandler, port=int(sys.argv[1]))"
FETCH = "import sys, urllib.request as u; print(u.urlopen(sys.argv[1], timeout=20).status)"
TOKEN = {
    "name": "token",
    "projected": {"sources": [{"serviceAccountToken": {"audience": "istio-ca", "path": "token"}}]},
}


def web():
    """Serves on 8080 only; rules of its init container redirect 80 there."""
    rule = "iptables-nft -t nat -A PREROUTING -p tcp --dport 80 -j REDIRECT --to-ports 8080"
    powers = {"capabilities": {"add": ["NET_ADMIN"], "drop": ["ALL"]}}
    probe = {"tcpSocket": {"port": 8080}, "periodSeconds": 1}
    return pod(
        NAMESPACE,
        "web",
        container("web", "python3", "-c", SERVE, "8080", readinessProbe=probe),
        initContainers=[
            container("redirect", "sh", "-c", rule, securityContext=powers),
            container("beside", "sh", "-c", "echo beside starts; exec sleep infinity", restartPolicy="Always"),
        ],
    )


def client():
    security = {"runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}, "allowPrivilegeEscalation": False}
    limits = {"limits": {"cpu": "500m", "memory": "128Mi"}}
    mounts = [{"name": "token", "mountPath": "/var/run/secrets/tokens"}]
    main = container("client", "sleep", "infinity", mounts=mounts, securityContext=security, resources=limits)
    return pod(NAMESPACE, "client", main, volumes=[TOKEN])


@pytest.fixture(scope="module")
def pods(cluster):
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    wait_for(lambda: "default" in cluster.kubectl("-n", NAMESPACE, "get", "serviceaccounts"), "accounts", timeout=60)
    cluster.apply(web(), client(), service(NAMESPACE, "web", 80, 80, type="NodePort"))
    cluster.kubectl("-n", NAMESPACE, "wait", "--for=condition=Ready", "pod/web", "pod/client", "--timeout=240s")
    yield cluster
    cluster.kubectl("delete", "namespace", NAMESPACE, "--wait=false")


def status(cluster, name):
    return json.loads(cluster.kubectl("-n", NAMESPACE, "get", "pod", name, "-o", "json"))["status"]


def run(cluster, *command):
    return cluster.kubectl("-n", NAMESPACE, "exec", "client", "--", *command).strip()


def wait_fetched(cluster, url):
    """A pod that has just become ready becomes an endpoint a moment later."""

    def fetched():
        try:
            return run(cluster, "python3", "-c", FETCH, url) == "200"
        except Failed:
            return False

    wait_for(fetched, f"an answer of {url}", timeout=60)


def test_a_pod_reaches_a_service_by_name_through_rules_of_an_init_container(pods):
    """Tests DNS, the service's address, pod to pod, REDIRECT and exec at once: nothing listens on 80."""
    wait_fetched(pods, f"http://web.{NAMESPACE}.svc.cluster.local/etc/")


def test_the_machine_reaches_a_node_port(pods):
    found = json.loads(pods.kubectl("-n", NAMESPACE, "get", "service", "web", "-o", "json"))
    port = found["spec"]["ports"][0]["nodePort"]
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def answered():
        try:
            return opener.open(f"http://{INSIDE}:{port}/etc/", timeout=20).status == 200
        except OSError:
            return False

    wait_for(answered, "an answer of the node port", timeout=60)


def test_a_native_sidecar_starts_before_and_runs_beside_the_container(pods):
    found = status(pods, "web")
    beside = next(each for each in found["initContainerStatuses"] if each["name"] == "beside")
    began = found["containerStatuses"][0]["state"]["running"]["startedAt"]
    assert beside["started"] is True
    assert beside["state"]["running"]["startedAt"] <= began


def test_logs_are_kept(pods):
    assert pods.kubectl("-n", NAMESPACE, "logs", "web", "-c", "beside").strip() == "beside starts"


def test_a_projected_token_is_accepted_for_its_audience_only(pods):
    token = run(pods, "cat", "/var/run/secrets/tokens/token")

    def review(audience):
        body = {"spec": {"token": token, "audiences": [audience]}}
        return pods.api.request("POST", "/apis/authentication.k8s.io/v1/tokenreviews", body)["status"]

    believed = review("istio-ca")
    assert believed["authenticated"] is True
    assert believed["user"]["username"] == f"system:serviceaccount:{NAMESPACE}:default"
    assert believed["user"]["extra"]["authentication.kubernetes.io/pod-name"] == ["client"]
    assert believed["user"]["extra"]["authentication.kubernetes.io/node-name"] == [pods.node.name]
    assert "authenticated" not in review("somebody-else")


HOOK = """
import base64, http.server, json, ssl
class Hook(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        patch = json.dumps([{"op": "add", "path": "/data", "value": {"hook": "was here"}}])
        answer = {"uid": review["request"]["uid"], "allowed": True, "patchType": "JSONPatch",
                  "patch": base64.b64encode(patch.encode()).decode()}
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({**review, "request": None, "response": answer}).encode())
server = http.server.ThreadingHTTPServer(("", 8443), Hook)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain("/keys/tls.crt", "/keys/tls.key")
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
"""


def test_the_api_server_calls_a_webhook_by_its_service(pods, tmp_path):
    certificate = Authority(tmp_path).server("hook", (f"hook.{NAMESPACE}.svc",))
    encoded = {
        name: base64.b64encode(path.read_bytes()).decode()
        for name, path in {"tls.crt": certificate, "tls.key": certificate.with_suffix(".key")}.items()
    }
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "hook", "namespace": NAMESPACE},
        "data": encoded,
    }
    keys = {"name": "keys", "secret": {"secretName": "hook"}}
    mounts = [{"name": "keys", "mountPath": "/keys"}]
    probe = {"tcpSocket": {"port": 8443}, "periodSeconds": 1}
    main = container("hook", "python3", "-c", HOOK, mounts=mounts, readinessProbe=probe)
    pods.apply(secret, pod(NAMESPACE, "hook", main, volumes=[keys]), service(NAMESPACE, "hook", 443, 8443))
    pods.kubectl("-n", NAMESPACE, "wait", "--for=condition=Ready", "pod/hook", "--timeout=240s")
    hook = {
        "name": "hook.weft.dev",
        "clientConfig": {
            "service": {"name": "hook", "namespace": NAMESPACE},
            "caBundle": base64.b64encode((tmp_path / "ca.crt").read_bytes()).decode(),
        },
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}},
        "failurePolicy": "Ignore",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
    }
    configuration = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": NAMESPACE},
        "webhooks": [hook],
    }
    pods.apply(configuration)
    try:
        assert wait_for(lambda: mutated(pods), "the webhook to be called", timeout=60) == "was here"
    finally:
        pods.kubectl("delete", "mutatingwebhookconfiguration", NAMESPACE)


def mutated(cluster):
    """The API server uses a webhook configuration a moment after it was stored."""
    body = {"metadata": {"generateName": "hook-"}}
    return cluster.api.request("POST", f"/api/v1/namespaces/{NAMESPACE}/configmaps", body).get("data", {}).get("hook")


def test_the_machine_outside_of_the_cluster_is_not_changed(pods, machine_before):
    looked, mounted = machine_before
    assert machine.look() == looked
    assert not machine.leaked(mounted, pods.holder.pid())
