"""Applications for pods of the mesh, in the mesh's own image: it has a Python with gRPC, and needs nothing from the
node, so the pods also run where pod security is `restricted`."""

import json

from tools.kube.process import Failed

from on_cluster.admission import IMAGE
from on_cluster.mesh import until

# Not the image's own user, which is the proxy's: traffic of that user is not redirected.
RESTRICTED = {
    "runAsUser": 1000,
    "runAsNonRoot": True,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}

# Returns each caller's headers, and $VERSION. `/ready` returns 503 after `/switch/off`. Listens on every address, or on
# $BIND.
SERVE = """
import http.server, json, os, sys, threading
ready = threading.Event()
ready.set()
class App(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        if self.path.startswith("/switch/"):
            (ready.set if self.path == "/switch/on" else ready.clear)()
        headers = {name.lower(): value for name, value in self.headers.items()}
        said = {"headers": headers, "caller": self.client_address[0], "version": os.environ.get("VERSION", "")}
        body = json.dumps(said).encode()
        self.send_response(503 if self.path == "/ready" and not ready.is_set() else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *arguments):
        pass
for port in sys.argv[1:]:
    server = http.server.ThreadingHTTPServer((os.environ.get("BIND", ""), int(port)), App)
    threading.Thread(target=server.serve_forever).start()
"""

# gRPC's health service: the service `sick` is not serving, every other one is.
SERVE_GRPC = """
import concurrent.futures, sys, grpc
class Health(grpc.GenericRpcHandler):
    def service(self, details):
        if details.method == "/grpc.health.v1.Health/Check":
            answer = lambda request, context: b"\\x08\\x02" if b"sick" in request else b"\\x08\\x01"
            return grpc.unary_unary_rpc_method_handler(answer)
server = grpc.server(concurrent.futures.ThreadPoolExecutor(2), handlers=(Health(),))
server.add_insecure_port(f"0.0.0.0:{sys.argv[1]}")
server.start()
server.wait_for_termination()
"""

# The same over TLS, with an untrusted certificate.
SERVE_TLS = """
import datetime, http.server, ssl, sys, tempfile
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization as forms
from cryptography.hazmat.primitives.asymmetric import ec
key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([])
now, day = datetime.datetime.now(datetime.timezone.utc), datetime.timedelta(days=1)
builder = x509.CertificateBuilder(name, name, key.public_key(), 1, now - day, now + day)
with tempfile.NamedTemporaryFile(dir="/dev/shm") as file:
    file.write(key.private_bytes(forms.Encoding.PEM, forms.PrivateFormat.PKCS8, forms.NoEncryption()))
    file.write(builder.sign(key, hashes.SHA256()).public_bytes(forms.Encoding.PEM))
    file.flush()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file.name)
class App(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.headers["Host"] == sys.argv[2] else 404)
        self.end_headers()
server = http.server.ThreadingHTTPServer(("", int(sys.argv[1])), App)
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
"""

FETCH = """
import json, sys, urllib.error, urllib.request
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
for url in sys.argv[1:]:
    try:
        with opener.open(url, timeout=10) as answer:
            print(json.dumps([answer.status, json.loads(answer.read())]))
    except urllib.error.HTTPError as failed:
        print(json.dumps([failed.code, failed.read().decode()]))
    except OSError as failed:
        print(json.dumps([0, str(failed)]))
"""

# Retries until it gets a response, and writes the caller's identity as the termination message.
ASK = """
import json, sys, time, urllib.request
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
while True:
    try:
        with opener.open(sys.argv[1], timeout=5) as answer:
            said = json.loads(answer.read())["headers"].get("x-forwarded-client-cert", "nobody")
        break
    except (OSError, ValueError):
        time.sleep(0.2)
open("/dev/termination-log", "w").write(said)
"""


def python(name, program, *arguments, **more):
    return {
        "name": name,
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "command": ["python3", "-c", program, *arguments],
        "securityContext": RESTRICTED,
        **more,
    }


def spec(*containers, **more):
    return {"containers": list(containers), "terminationGracePeriodSeconds": 2, **more}


def pod(namespace, name, *containers, labels=None, annotations=None, **more):
    metadata = {"name": name, "namespace": namespace, "labels": {"app": name, **(labels or {})}}
    if annotations:
        metadata["annotations"] = annotations
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec(*containers, **more)}


def of_kind(version, kind, namespace, name, wanted):
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": wanted}


def template(name, wanted, annotations=None):
    """The selector of a workload and its pods."""
    labels = {"app": name}
    metadata = {"labels": labels, **({"annotations": annotations} if annotations else {})}
    return {"selector": {"matchLabels": labels}, "template": {"metadata": metadata, "spec": wanted}}


def service(namespace, name, *ports, **more):
    """Ports as (name, port, target)."""
    entries = [{"name": word, "port": port, "targetPort": target} for word, port, target in ports]
    return of_kind("v1", "Service", namespace, name, {"selector": {"app": name}, "ports": entries, **more})


def strict(namespace):
    wanted = {"mtls": {"mode": "STRICT"}}
    return of_kind("security.istio.io/v1", "PeerAuthentication", namespace, "default", wanted)


def get(cluster, kind, namespace, name="", selector=""):
    """One object, or all that the selector selects."""
    words = [f"--namespace={namespace}", "get", kind, *([name] if name else []), "-o", "json"]
    found = json.loads(cluster.kubectl(*words, *([f"--selector={selector}"] if selector else [])))
    return found if name else found["items"]


def fetch(cluster, namespace, caller, *urls, container="app"):
    """Fetch URLs from inside the pod: for each its status, 0 without a response, and the body."""
    words = [f"--namespace={namespace}", "exec", caller, "-c", container, "--", "python3", "-c", FETCH, *urls]
    return [json.loads(line) for line in cluster.kubectl(*words).splitlines()]


def fetched(cluster, namespace, caller, url, **more):
    """The body of the first successful response. It takes a moment until every proxy has a pod that has just become
    ready."""

    def answer():
        try:
            ((status, said),) = fetch(cluster, namespace, caller, url, **more)
        except Failed:
            return None
        return said if status == 200 else None

    return until(answer)


def caller_of(said):
    """The caller's identity that the server's proxy saw; empty for plaintext."""
    header = said["headers"].get("x-forwarded-client-cert", "")
    return next((part[4:] for part in header.split(";") if part.startswith("URI=")), "")


def process(cluster, pod, container):
    """The first process of a container, by its PID on the node."""
    statuses = pod["status"]["containerStatuses"] + pod["status"].get("initContainerStatuses", [])
    (found,) = [each["containerID"].partition("://")[2] for each in statuses if each["name"] == container]
    tasks = cluster.holder.run("ctr", "-n", "k8s.io", "tasks", "ls").stdout.splitlines()
    return next(int(line.split()[1]) for line in tasks if line.split()[0] == found)


def rules(cluster, pod, container="app"):
    """The redirect rules of the pod's own network: the lines of `iptables-save`."""
    number = process(cluster, pod, container)
    done = cluster.holder.run("nsenter", f"--net=/proc/{number}/ns/net", "iptables-save", "-t", "nat")
    return done.stdout.splitlines()
