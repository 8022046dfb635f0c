"""Sends objects to a real API server with our webhooks behind it, without storing anything.

Pods are created with `dryRun=All`: all of admission runs, ours too, and the response is the pod as it would have
been stored.
"""

import base64
import contextlib
import http.server
import json
import ssl
import threading
import urllib.error
import urllib.request

from tools.kube.api_server import RequestFailed
from tools.kube.certificates import Authority
from tools.kube.holder import OUTSIDE

from on_cluster.mesh import NAMESPACE, until
from weft import __version__

STATUS = "sidecar.istio.io/status"
IMAGE = f"weft:{__version__}"


def plain_pod(name="pod", labels=None, annotations=None, **spec):
    containers = [{"name": "app", "image": IMAGE, "command": ["sleep"]}]
    metadata = {"name": name, "labels": labels or {}, "annotations": annotations or {}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": containers, **spec}}


def tried(cluster, namespace, pod):
    """The pod as the API server would store it. Raises RequestFailed if it is rejected."""
    return cluster.api.request("POST", f"/api/v1/namespaces/{namespace}/pods?dryRun=All", pod)


def refusal(cluster, namespace, pod):
    """The API server's error for the creation of this pod."""
    try:
        tried(cluster, namespace, pod)
    except RequestFailed as failed:
        return json.loads(str(failed).partition(": ")[2])["message"]
    raise AssertionError("it was not refused")


def injected_by(pod):
    """The revision; empty for a pod without a sidecar."""
    status = pod["metadata"].get("annotations", {}).get(STATUS)
    return json.loads(status)["revision"] if status else ""


def containers(pod):
    spec = pod["spec"]
    return {each["name"]: each for each in [*spec["containers"], *spec.get("initContainers", ())]}


def make_namespaces(cluster, labelled):
    """Create each namespace with its labels; returns once pods can be created in them, which needs a service
    account."""
    for name, labels in labelled.items():
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
        cluster.api.request("POST", "/api/v1/namespaces", namespace)
    for name in labelled:
        until(lambda name=name: _exists(cluster, f"/api/v1/namespaces/{name}/serviceaccounts/default"))


def remove_namespaces(cluster, names):
    for name in names:
        cluster.api.request("DELETE", f"/api/v1/namespaces/{name}")


def _exists(cluster, path):
    try:
        return cluster.api.request("GET", path)
    except RequestFailed as failed:
        if failed.status != 404:
            raise
        return None


def replicas(cluster, revision="default"):
    """The names of the control plane's pods that serve."""
    selector = f"labelSelector=app%3Distiod%2Cistio.io%2Frev%3D{revision}"
    found = cluster.api.request("GET", f"/api/v1/namespaces/{NAMESPACE}/pods?{selector}")["items"]
    return [
        each["metadata"]["name"]
        for each in found
        if not each["metadata"].get("deletionTimestamp")
        and any(c["type"] == "Ready" and c["status"] == "True" for c in each["status"].get("conditions", ()))
    ]


def post(cluster, replica, path, body, kind="application/json"):
    """Send bytes to one replica's webhook over TLS, through the API server's proxy: (status, text)."""
    url = f"{cluster.api.server}/api/v1/namespaces/{NAMESPACE}/pods/https:{replica}:15017/proxy{path}"
    context = ssl.create_default_context(cafile=str(cluster.api.ca))
    context.load_cert_chain(cluster.api.certificate, cluster.api.key)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
    try:
        with opener.open(urllib.request.Request(url, body, {"Content-Type": kind}), timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as failed:
        return failed.code, failed.read().decode()


def review(pod, namespace, **more):
    """The API server's review of a new pod."""
    request = {
        "uid": "1",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "operation": "CREATE",
        "namespace": namespace,
        "object": pod,
        **more,
    }
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


def patch_of(answer):
    return json.loads(base64.b64decode(json.loads(answer)["response"]["patch"]))


@contextlib.contextmanager
def webhook(cluster, directory, name, change, *, namespaces):
    """Another mutating webhook while the block runs: `change` is called with every pod and returns a JSON patch.

    The API server calls webhook configurations in the order of their names. The server runs here, on the machine's
    end of the cluster's link.
    """
    authority = Authority(directory)
    certificate = authority.server("hook", (OUTSIDE,))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, certificate.with_suffix(".key"))

    class Hook(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            patch = base64.b64encode(json.dumps(change(asked["request"]["object"])).encode()).decode()
            answer = {"uid": asked["request"]["uid"], "allowed": True, "patchType": "JSONPatch", "patch": patch}
            body = json.dumps({**asked, "request": None, "response": answer}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments):
            pass

    server = http.server.ThreadingHTTPServer((OUTSIDE, 0), Hook)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    authorities = base64.b64encode((directory / "ca.crt").read_bytes()).decode()
    url = f"https://{OUTSIDE}:{server.server_address[1]}/"
    try:
        cluster.apply(_configuration(name, url, authorities, namespaces))
        yield
    finally:
        cluster.kubectl("delete", "mutatingwebhookconfiguration", name, "--ignore-not-found")
        server.shutdown()
        server.server_close()


def _configuration(name, url, authorities, namespaces):
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": [
            {
                "name": f"{name}.example.com",
                "clientConfig": {"url": url, "caBundle": authorities},
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                "failurePolicy": "Fail",
                "reinvocationPolicy": "IfNeeded",
                "namespaceSelector": {
                    "matchExpressions": [
                        {"key": "kubernetes.io/metadata.name", "operator": "In", "values": list(namespaces)}
                    ]
                },
                "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
            }
        ],
    }
