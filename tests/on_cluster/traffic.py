"""Meshed pods of which one calls others without a pause and counts failures, and ways to inspect and kill them
without an API server: from the node itself, and through containerd."""

import json
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from tools.image.build import version

from on_cluster.mesh import until

PROGRAM = (Path(__file__).parent / "peer.py").read_text()
# Without an HTTP proxy from the environment: this tests the cluster alone.
GET = """
import sys, urllib.request
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
sys.stdout.write(opener.open(sys.argv[1], timeout=10).read().decode())
"""


def peer(namespace, name, *urls):
    """A pod that serves, and calls these URLs as long as it lives."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {"app": name},
            "annotations": {"traffic.sidecar.istio.io/excludeInboundPorts": "9090"},
        },
        "spec": {"containers": [container(*urls)], "terminationGracePeriodSeconds": 2},
    }


def container(*urls):
    return {
        "name": "app",
        "image": f"docker.io/library/weft:{version()}",
        "imagePullPolicy": "Never",
        "command": ["python3", "-c", PROGRAM, *urls],
        # The image's own user is the proxy's, which is never intercepted.
        "securityContext": {"runAsUser": 1000, "runAsGroup": 1000},
        "ports": [{"name": "http", "containerPort": 8080}],
        "readinessProbe": {"tcpSocket": {"port": 8080}, "periodSeconds": 1},
        "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}},
    }


def deployment(pod):
    """A Deployment of such pods."""
    metadata, labels = pod["metadata"], pod["metadata"]["labels"]
    template = {"metadata": {"labels": labels, "annotations": metadata["annotations"]}, "spec": pod["spec"]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": metadata["name"], "namespace": metadata["namespace"]},
        "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": template},
    }


def service(namespace, name, app, **more):
    ports = [{"name": "http", "port": 80, "targetPort": 8080}]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"selector": {"app": app}, "ports": ports, **more},
    }


def strict(namespace):
    return {
        "apiVersion": "security.istio.io/v1",
        "kind": "PeerAuthentication",
        "metadata": {"name": "default", "namespace": namespace},
        "spec": {"mtls": {"mode": "STRICT"}},
    }


def one_request_per_connection(namespace, name):
    """Each request needs a new handshake."""
    return {
        "apiVersion": "networking.istio.io/v1",
        "kind": "DestinationRule",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "host": f"{name}.{namespace}.svc.cluster.local",
            "trafficPolicy": {"connectionPool": {"http": {"maxRequestsPerConnection": 1}}},
        },
    }


class Pods:
    """Pods of the mesh that run `peer.py`, each by a short name: NAME=(namespace, pod). One is `client`."""

    def __init__(self, mesh, **pods):
        self.mesh, self.holder = mesh, mesh.cluster.holder
        self._pods = pods
        self.addresses = {name: self.pod(name)["status"]["podIP"] for name in pods}

    def pod(self, name):
        namespace, pod = self._pods.get(name, (self._pods["client"][0], name))
        return json.loads(self.mesh.kubectl("get", "pod", f"--namespace={namespace}", pod, "-o", "json"))

    def counts(self):
        return json.loads(self.get(f"http://{self.addresses['client']}:9090/counts"))

    @contextmanager
    def undisturbed(self, least=20, but=""):
        """During the block at least this many more requests are sent, and none fails, except to this URL."""
        before = self.counts()
        yield
        until(lambda: self.counts()["sent"] - before["sent"] >= least)
        after = self.counts()
        for each in (before, after):
            each["failed"].pop(but, None)
        assert after["failed"] == before["failed"], after["failures"]

    def fetch(self, name, url):
        """The response that a pod's program gets: its status (0 without one) and body."""
        return json.loads(self.get(f"http://{self.addresses[name]}:9090/fetch?url={quote(url)}"))

    def metrics(self, address):
        """Metrics of weft itself, in the pod with this address."""
        lines = self.get(f"http://{address}:15014/metrics").splitlines()
        return {name: float(value) for name, value in (line.split() for line in lines if not line.startswith("#"))}

    def get(self, url, *, joined=()):
        done = self.holder.run(*joined, sys.executable, "-I", "-c", GET, url, check=False)
        if done.returncode:
            raise ConnectionError(f"{url}: {done.stderr.strip().splitlines()[-1:]}")
        return done.stdout

    def admin(self, name, path):
        """A response of the admin API of a pod's Envoy."""
        pid = self.pid(*self._pods[name], "istio-proxy")
        return self.get(f"http://127.0.0.1:15000{path}", joined=("nsenter", f"--target={pid}", "--net"))

    def serial(self, name):
        """The serial number of the certificate that a pod's Envoy uses."""
        held = json.loads(self.admin(name, "/certs"))["certificates"]
        return next(each["cert_chain"][0]["serial_number"] for each in held if each.get("cert_chain"))

    def pid(self, namespace, pod, container):
        """The PID on the node of a container's first process; 0 if none runs. `pod` may be a prefix of its name."""
        return next(iter(self.pids(namespace, pod, container).values()), 0)

    def pids(self, namespace, pod, container):
        labels = {"pod.namespace": namespace, "container.name": container}
        wanted = ",".join(f'labels."io.kubernetes.{name}"=={value}' for name, value in labels.items())
        wanted += f',labels."io.kubernetes.pod.name"~=^{pod}'
        known = self._ctr("containers", "ls", "-q", wanted).split()
        running = (line.split() for line in self._ctr("tasks", "ls").splitlines())
        return {words[0]: int(words[1]) for words in running if words[0] in known and words[2] == "RUNNING"}

    def kill(self, namespace, pod, container):
        """Send SIGKILL; returns the killed processes."""
        killed = self.pids(namespace, pod, container)
        assert killed, f"no {container} runs in {namespace}/{pod}"
        self.holder.run("sh", "-c", f"kill -9 {' '.join(map(str, killed.values()))}")
        return killed

    def returned(self, namespace, pod, container, killed, timeout=60):
        """Wait until another process runs in the place of a killed one."""
        until(lambda: self.pids(namespace, pod, container).keys() - killed.keys(), timeout)

    def _ctr(self, *arguments):
        return self.holder.run("ctr", "-n", "k8s.io", *arguments).stdout


def started(mesh, namespace):
    """`client` calls `echo` over kept connections, and `fresh`, the same pod, over a new one for each request.
    `spare` has no traffic."""
    urls = [f"http://{name}.{namespace}/" for name in ("echo", "fresh")]
    mesh.apply(
        strict(namespace),
        # Kubernetes marks a pod unready for a moment when its kubelet restarts (before 1.35).
        service(namespace, "echo", "echo", publishNotReadyAddresses=True),
        service(namespace, "fresh", "echo", publishNotReadyAddresses=True),
        one_request_per_connection(namespace, "fresh"),
        peer(namespace, "echo"),
        peer(namespace, "client", *urls),
        peer(namespace, "spare"),
    )
    names = ("echo", "client", "spare")
    mesh.wait(namespace, *(f"pod/{name}" for name in names))
    pods = Pods(mesh, **{name: (namespace, name) for name in names})
    until(lambda: pods.fetch("client", urls[1])["status"] == 200)
    return pods


def logs(mesh, namespace, labels, since="10m", *, previous=False):
    """Logs of all pods with these labels."""
    options = ["--prefix", "--tail=-1", f"--since={since}", *(["--previous"] if previous else [])]
    return mesh.kubectl("logs", f"--namespace={namespace}", f"--selector={labels}", *options)


def on_node(cluster, module, asked, environment):
    """The JSON output of a test module, run in the cluster's network."""
    command = ["nsenter", f"--target={cluster.holder.pid()}", "--net", sys.executable, "-m", module]
    done = subprocess.run(
        command, input=json.dumps(asked), env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def slept_until(moment):
    """Only for states that must last this long."""
    time.sleep(max(0.0, moment - time.monotonic()))
