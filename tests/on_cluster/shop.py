"""examples/shop on a cluster, by `weft kube-export` from the YAML that runs it on one machine.

Only what this cluster needs is changed, nothing of the mesh: the image of weft has no Perl and no `sleep`, so
workloads that need them run this machine's own programs; and timeouts are long, because the two cores may be busy. A
customer, which is not part of the shop, sends requests and counts.
"""

import base64
import json
import shutil
from pathlib import Path

import yaml
from cryptography import x509
from tools.kube.cluster import HOST_IMAGE
from tools.kube.process import Failed

from on_cluster.mesh import until
from on_cluster.objects import USR, container
from weft import __version__

NAME = "shop"
EXAMPLE = Path(__file__).parent.parent.parent / "examples" / NAME
IMAGE = f"weft:{__version__}"
PATIENCE = "60"  # seconds
NAMES = {"options": [{"name": "timeout", "value": "10"}, {"name": "attempts", "value": "5"}]}  # options of the resolver
NOT_IN_IMAGE = {"ledger", "outsider"}
USER = {"runAsUser": 10_000}
READ = "import sys, urllib.request as u; print(u.urlopen(u.Request(*sys.argv[1:])).read().decode())"
ASK = """
import sys, urllib.error, urllib.request
try:
    print(urllib.request.urlopen(sys.argv[1], timeout=60).status)
except urllib.error.HTTPError as error:
    print(error.code)
except OSError as error:
    print(error)
"""
# Prints one line for each certificate that the proxy has had.
NOTE_CERTIFICATES = """
import json, time, urllib.request
before = None
while True:
    with urllib.request.urlopen("http://127.0.0.1:15000/certs", timeout=60) as answer:
        found = json.load(answer)["certificates"]
    serials = sorted({each["serial_number"] for one in found for each in one["cert_chain"]})
    if serials and serials != before:
        print(*serials, flush=True)
        before = serials
    time.sleep(1)
"""


class Shop:
    def __init__(self, mesh, directory):
        self.mesh = mesh
        self.kubectl = mesh.kubectl
        self._directory = directory / NAME

    def open(self):
        """Deploy, and wait until a customer has been served."""
        shutil.copytree(EXAMPLE, self._directory)
        shutil.copy(self._directory / "outsider.yaml.example", self._directory / "outsider.yaml")
        exported = self.mesh.weft("kube-export", str(self._directory), "--image", IMAGE, only_output=True)
        objects = [fitted(each) for each in yaml.safe_load_all(exported)]
        self.programs = next(each["metadata"]["name"] for each in objects if each["kind"] == "ConfigMap")
        self.apply(*objects, self._customer())
        self.mesh.rolled_out(NAME)
        until(lambda: self.answers() and self.answers()[-1]["status"] == 200, timeout=120)
        self.opened = len(self.answers())

    def close(self, *, wait):
        """Remove the shop and its mesh-wide objects, without waiting for graceful shutdown."""
        inside = f"--namespace={NAME}"
        self.kubectl("delete", "deployments,jobs", inside, "--all", "--cascade=orphan")
        self.kubectl("delete", "pods", inside, "--all", "--grace-period=1", "--wait=false")
        self.kubectl("delete", "peerauthentication", "default", "--namespace=istio-system", "--ignore-not-found")
        self.kubectl("delete", "namespace", NAME, "--ignore-not-found", f"--wait={str(wait).lower()}", "--timeout=120s")

    def apply(self, *objects):
        """Apply objects with kubectl; returns its output."""
        return self.kubectl("apply", "-f", "-", text=yaml.safe_dump_all(objects))

    def deployments(self):
        return self.kubectl("get", "deployments", f"--namespace={NAME}", "-o", "name").split()

    def get(self, *what):
        return json.loads(self.kubectl("get", f"--namespace={NAME}", *what, "-o", "json"))

    def log(self, who, container="app"):
        """The log of all pods of a Deployment, or of one pod."""
        pods = [who]
        if who.startswith("deployment/"):
            labels = self.get(who)["spec"]["selector"]["matchLabels"]
            chosen = ",".join(f"{name}={value}" for name, value in labels.items())
            pods = [each["metadata"]["name"] for each in self.get("pods", "-l", chosen)["items"]]
        return "".join(self._log(pod, container) for pod in pods)

    def _log(self, pod, container):
        try:
            return self.kubectl("logs", f"--namespace={NAME}", pod, f"--container={container}")
        except Failed:  # it has ended, or not started
            return ""

    def run(self, who, *command):
        return self.kubectl("exec", f"--namespace={NAME}", who, "--container=app", "--", *command)

    def ask(self, who, url):
        """The status, or the error."""
        return self.run(who, "python3", "-c", ASK, url).strip()

    def ask_often(self, who, url, count):
        """Uses the shop's own program, which is slow."""
        said = self.run(who, "python3", "ask.py", url, str(count), "--timeout", PATIENCE)
        return [json.loads(line) for line in said.splitlines()]

    def proxy(self, who, path):
        return self.run(who, "python3", "-c", READ, f"http://127.0.0.1:15000{path}")

    def retries(self, who, cluster):
        """The number of retried calls to a service that then succeeded."""
        name = f"cluster.{cluster}.upstream_rq_retry_success"
        found = json.loads(self.proxy(who, "/stats?format=json&filter=upstream_rq_retry_success"))
        return sum(each["value"] for each in found["stats"] if each.get("name") == name)

    def certificate(self, who):
        """The certificate that its proxy presents now."""
        dump = json.loads(self.proxy(who, "/config_dump?resource=dynamic_active_secrets"))["configs"]
        chain = next(each["secret"]["tls_certificate"] for each in dump if each["name"] == "default")
        pem = base64.b64decode(chain["certificate_chain"]["inline_bytes"])
        return x509.load_pem_x509_certificate(pem)

    def answers(self):
        """All responses of the customer so far, in order."""
        return [json.loads(line) for line in self.log("customer").splitlines() if line.endswith("}")]

    def certificates(self):
        """The customer's own certificates so far, by serial number."""
        return self.log("customer", "certificates").split()

    def served(self, done, more=20):
        """Let the customer send requests during `done`, and then some more; returns the failed ones."""
        before = len(self.answers())
        done()
        least = len(self.answers()) + more
        until(lambda: len(self.answers()) >= least, timeout=200, every=1)
        after = self.answers()[before:]
        return [each for each in after if each["status"] != 200]

    def _customer(self):
        """It has the only account that frontend admits, and belongs to no Deployment, so no rollout restarts it."""
        asking = ["ask.py", "http://frontend/", "1000000", "--parallel=2", "--pause=0.1", f"--timeout={PATIENCE}"]
        mounts = [{"name": "programs", "mountPath": "/programs"}]
        common = {"image": IMAGE, "securityContext": USER}
        asks = {"name": "app", "command": ["python3", *asking], "workingDir": "/programs", "volumeMounts": mounts}
        notes = {"name": "certificates", "command": ["python3", "-c", NOTE_CERTIFICATES]}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "customer", "namespace": NAME, "labels": {"app": "customer"}},
            "spec": {
                "serviceAccountName": "loadgen",
                "terminationGracePeriodSeconds": 1,
                "dnsConfig": NAMES,
                "containers": [asks | common, notes | common],
                "volumes": [{"name": "programs", "configMap": {"name": self.programs}}],
            },
        }


def fitted(document):
    """Adapt a document to this cluster."""
    if document["kind"] not in ("Deployment", "Job"):
        return document
    spec = document["spec"]["template"]["spec"]
    (app,) = spec["containers"]
    app["env"].append({"name": "PATIENCE", "value": PATIENCE})
    spec |= {"terminationGracePeriodSeconds": 2, "dnsConfig": NAMES}
    if "readinessProbe" in app:
        spec["terminationGracePeriodSeconds"] = 2 * int(PATIENCE)
        app["readinessProbe"] |= {"timeoutSeconds": 10, "failureThreshold": 30}
    if document["metadata"]["name"] in NOT_IN_IMAGE:
        of_machine = container("app")
        app |= {"image": HOST_IMAGE, "imagePullPolicy": "Never"}
        app["volumeMounts"] += of_machine["volumeMounts"]
        spec["volumes"].append(USR)
    return document


def host_network_daemon():
    """A DaemonSet on the host network, which gets no proxy: its ports are the machine's."""
    serve = "import http.server as h; h.test(h.SimpleHTTPRequestHandler, port=28080)"
    probe = {"tcpSocket": {"port": 28080}, "periodSeconds": 1}
    labels = {"app": "on-host"}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "on-host", "namespace": NAME},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "hostNetwork": True,
                    "terminationGracePeriodSeconds": 1,
                    "containers": [container("app", "python3", "-c", serve, readinessProbe=probe)],
                    "volumes": [USR],
                },
            },
        },
    }


def broken_catalog():
    """A third pod of catalog that fails every request."""
    serve = """
import http.server
class No(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        print("refused", flush=True)
        self.send_response(503)
        self.end_headers()
http.server.ThreadingHTTPServer(("", 8080), No).serve_forever()
"""
    app = {"name": "app", "image": IMAGE, "command": ["python3", "-c", serve], "securityContext": USER}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "catalog-broken", "namespace": NAME, "labels": {"app": "catalog"}},
        "spec": {"serviceAccountName": "catalog", "terminationGracePeriodSeconds": 1, "containers": [app]},
    }


def virtual_service(name, *routes):
    return {
        "apiVersion": "networking.istio.io/v1",
        "kind": "VirtualService",
        "metadata": {"name": name, "namespace": NAME},
        "spec": {"hosts": [name], "http": list(routes)},
    }


def split(first, second):
    """The weights of payments."""
    weights = {"v1": first, "v2": second}
    to = [{"destination": {"host": "payments", "subset": each}, "weight": weights[each]} for each in weights]
    return virtual_service("payments", {"route": to})
