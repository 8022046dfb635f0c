"""weft on a cluster, installed as users do: by `weft install`, from the image that `make image` builds."""

import itertools
import os
import subprocess
import sys

from tools.kube.process import Failed

from eventually import eventually_blocking
from tools import image

NAMESPACE = "istio-system"
TEST = "weft.dev/test"  # the label of namespaces created by a test
_numbers = itertools.count(1)


class Mesh:
    def __init__(self, cluster):
        self.cluster = cluster
        self.kubectl = cluster.kubectl

    def install(self, *arguments):
        """Install with the image of this checkout, which must be on the node already."""
        return self.weft("install", "--set", "imagePullPolicy=Never", *arguments)

    def weft(self, *arguments, check=True, text=None, only_output=False):
        """The output of a command, with its stderr unless `only_output`; on failure the exception contains stderr."""
        environment = {**os.environ, "KUBECONFIG": str(self.cluster.kubeconfig), "COLUMNS": "200"}
        done = subprocess.run(
            [sys.executable, "-m", "weft.cli", *arguments],
            env=environment, input=text, capture_output=True, text=True, timeout=400, check=False,
        )  # fmt: skip
        if check and done.returncode:
            raise AssertionError(f"weft {' '.join(arguments)}: {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout if only_output else done.stdout + done.stderr

    def apply(self, *objects):
        """Apply once our webhooks respond: a restarting kubelet makes their pods unready for a moment."""

        def admitted():
            try:
                self.cluster.apply(*objects)
            except Failed as failed:
                assert "failed calling webhook" in str(failed)
                return False
            return True

        until(admitted)

    def namespace(self, word, labels=None):
        """A new namespace, in the mesh unless its labels opt out; removed with the cluster or by the test."""
        name = f"{word}-{os.getpid() % 10_000}-{next(_numbers)}"
        labels = {"istio-injection": "enabled"} if labels is None else labels
        metadata = {"name": name, "labels": {**labels, TEST: "true"}}
        self.cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        return name

    def wait(self, namespace, *what, condition="condition=Ready", timeout=180):
        self.kubectl("wait", f"--namespace={namespace}", f"--for={condition}", *what, f"--timeout={timeout}s")

    def rolled_out(self, namespace, *names, timeout=240):
        for name in names or self.kubectl("get", f"--namespace={namespace}", "deployments", "-o", "name").split():
            self.kubectl("rollout", "status", f"--namespace={namespace}", name, f"--timeout={timeout}s")


def installed(cluster):
    """The mesh on this cluster, installed from this checkout."""
    cluster.load_image(image.build())
    mesh = Mesh(cluster)
    stands = mesh.kubectl("get", f"--namespace={NAMESPACE}", "pods", "-o", "name")
    mesh.install()
    if stands:
        # An image of the same name may be newer than the running pods.
        mesh.kubectl("rollout", "restart", f"--namespace={NAMESPACE}", "deployment/weft-control", "daemonset/weft-node")
        mesh.rolled_out(NAMESPACE, "deployment/weft-control", "daemonset/weft-node")
    return mesh


def until(condition, timeout=60, every=0.2):
    """Wait until the condition returns a true value, and return it; the error shows the last value.

    A condition may also assert: it may compare states of two moments, while other tests add and remove namespaces.
    """
    return eventually_blocking(condition, limit=timeout, every=every, retry=AssertionError)
