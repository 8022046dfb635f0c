"""weft on a cluster, put there as its users do: by `weft install`, from the image that `make image` builds."""

import itertools
import os
import subprocess
import sys

from tools.kube.process import Failed

from eventually import eventually_blocking
from tools import image

NAMESPACE = "istio-system"
TEST = "weft.dev/test"  # the label of namespaces that a test made
_numbers = itertools.count(1)


class Mesh:
    def __init__(self, cluster):
        self.cluster = cluster
        self.kubectl = cluster.kubectl

    def install(self, *arguments):
        """With the image of this checkout, which must be on the node already."""
        return self.weft("install", "--set", "imagePullPolicy=Never", *arguments)

    def weft(self, *arguments, check=True, text=None, only_output=False):
        """What the command prints, with what it says beside; its complaints are in the exception."""
        environment = {**os.environ, "KUBECONFIG": str(self.cluster.kubeconfig), "COLUMNS": "200"}
        done = subprocess.run(
            [sys.executable, "-m", "weft.cli", *arguments],
            env=environment, input=text, capture_output=True, text=True, timeout=400, check=False,
        )  # fmt: skip
        if check and done.returncode:
            raise AssertionError(f"weft {' '.join(arguments)}: {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout if only_output else done.stdout + done.stderr

    def apply(self, *objects):
        """Once our webhooks answer: a kubelet that starts again takes their pods' readiness for a moment."""

        def admitted():
            try:
                self.cluster.apply(*objects)
            except Failed as failed:
                assert "failed calling webhook" in str(failed)
                return False
            return True

        until(admitted)

    def namespace(self, word, labels=None):
        """A new one, in the mesh unless its labels say otherwise; removed with the cluster or by the test."""
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
    """The mesh on this cluster, as of this checkout."""
    cluster.load_image(image.build())
    mesh = Mesh(cluster)
    stands = mesh.kubectl("get", f"--namespace={NAMESPACE}", "pods", "-o", "name")
    mesh.install()
    if stands:
        # An image of the same name may be newer than the pods that run.
        mesh.kubectl("rollout", "restart", f"--namespace={NAMESPACE}", "deployment/weft-control", "daemonset/weft-node")
        mesh.rolled_out(NAMESPACE, "deployment/weft-control", "daemonset/weft-node")
    return mesh


def until(condition, timeout=60, every=0.2):
    """What the condition gives once it gives something; a hint of what it gave last in the end.

    A condition may also assert: what is compared is of two moments, and namespaces of other tests come and go.
    """
    return eventually_blocking(condition, limit=timeout, every=every, retry=AssertionError)
