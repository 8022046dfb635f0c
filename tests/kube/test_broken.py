"""Clusters that are broken on purpose, tests/broken/kubernetes: all at once on one real API server, and the commands that a
person in trouble types first say what is wrong, and of which object."""

import base64
import os
import shlex
import subprocess
import sys

import pytest
import yaml
from tools.kube.api_server import RequestFailed, started
from tools.troubleshooting import broken

from e2e.commands import missing
from weft.install.namespace import config_maps
from weft.install.values import Values
from weft.install.webhooks import injector

pytestmark = pytest.mark.kube

CASES = broken("kubernetes")
PATHS = {
    "Namespace": "/api/v1/namespaces",
    "Pod": "/api/v1/namespaces/{namespace}/pods",
    "Deployment": "/apis/apps/v1/namespaces/{namespace}/deployments",
}
WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
SYSTEM = "istio-system"
# Nothing runs it: of the control plane there is only what says that it is installed.
CONTROL = {
    "metadata": {"name": "weft-control", "labels": {"app": "istiod", "app.kubernetes.io/name": "weft"}},
    "spec": {
        "selector": {"matchLabels": {"app": "istiod"}},
        "template": {
            "metadata": {"labels": {"app": "istiod"}},
            "spec": {"containers": [{"name": "control", "image": "weft"}]},
        },
    },
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with started(tmp_path_factory.mktemp("broken")) as server:
        server.make_namespace(SYSTEM)
        for case in CASES:
            for each in filter(None, yaml.safe_load_all(case.text)):
                make(server, each)
        server.request("POST", PATHS["Deployment"].format(namespace=SYSTEM), CONTROL)
        root = server.ca.read_text()
        published = {"metadata": {"name": "istio-ca-root-cert"}, "data": {"root-cert.pem": root}}
        server.request("POST", f"/api/v1/namespaces/{SYSTEM}/configmaps", published)
        server.request("POST", f"/api/v1/namespaces/{SYSTEM}/configmaps", config_maps(Values())[1])
        other = server.certificate.read_text()  # a certificate, and not that of the root
        for revision, bundle in (("default", root), ("canary", other)):
            made = injector(Values(revision=revision))
            for webhook in made["webhooks"]:
                webhook["clientConfig"]["caBundle"] = base64.b64encode(bundle.encode()).decode()
            server.request("POST", WEBHOOKS, made)
        yield server


def make(server, each):
    namespace = each["metadata"].get("namespace", "")
    if each["kind"] == "Namespace":
        server.make_namespace(each["metadata"]["name"], each["metadata"]["labels"])
        return
    made = server.request("POST", PATHS[each["kind"]].format(namespace=namespace), each)
    if each["kind"] == "Pod":
        made["status"] = {"phase": "Running"}
        server.request("PUT", PATHS["Pod"].format(namespace=namespace) + f"/{made['metadata']['name']}/status", made)


@pytest.fixture(scope="module")
def said(cluster):
    kept = {}

    def ask(command):
        if command not in kept:
            words = [*shlex.split(command)[1:], "--kubeconfig", str(cluster.kubeconfig)]
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
            done = subprocess.run(
                [sys.executable, "-m", "weft.cli", *words],
                env=environment,
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            kept[command] = done.stdout + done.stderr
        return kept[command]

    return ask


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_first_commands_of_a_user_name_the_problem_and_its_object(case, said):
    assert not (wrong := missing(case, {typed.command: said(typed.command) for typed in case.typed})), wrong


def test_no_pod_is_created_while_the_webhook_is_down(cluster):
    pod = {"metadata": {"name": "tried"}, "spec": {"containers": [{"name": "app", "image": "app"}]}}
    with pytest.raises(RequestFailed, match="failed calling webhook"):
        cluster.request("POST", "/api/v1/namespaces/down/pods?dryRun=All", pod)
