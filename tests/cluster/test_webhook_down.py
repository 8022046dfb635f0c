"""A control plane that is away while pods are made: refused with a reason, or let through without a proxy, as was
chosen at the installation. It is the second revision's: what other tests need is not touched."""

import json

import pytest
import yaml
from tools.kube.process import Failed

from cluster import apps
from cluster.admission import STATUS, plain_pod, refusal
from cluster.apps import SERVE, get, of_kind, python
from cluster.mesh import NAMESPACE, until

CONFIGURATION = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/istio-sidecar-injector-"


@pytest.fixture(scope="module")
def namespace(mesh, canary):
    """With nobody to answer its webhook."""
    control = f"deployment/weft-control-{canary}"
    name = mesh.namespace("down", {"istio.io/rev": canary})
    mesh.kubectl("scale", f"--namespace={NAMESPACE}", control, "--replicas=0")
    until(lambda: not get(mesh.cluster, "pods", NAMESPACE, selector=f"app=istiod,istio.io/rev={canary}"))
    yield name
    mesh.kubectl("delete", "namespace", name, "--wait=false")
    mesh.kubectl("scale", f"--namespace={NAMESPACE}", control, "--replicas=2")
    mesh.rolled_out(NAMESPACE, control)


def test_a_pod_is_refused_while_nobody_can_inject_it(mesh, cluster, namespace):
    wanted = apps.template("web", apps.spec(python("app", SERVE, "8080")))
    cluster.apply(of_kind("apps/v1", "Deployment", namespace, "web", {"replicas": 1, **wanted}))

    def told():
        return [each for each in get(cluster, "events", namespace) if each["reason"] == "FailedCreate"]

    event = until(told)[0]
    assert event["involvedObject"]["kind"] == "ReplicaSet"
    assert 'failed calling webhook "rev.namespace.sidecar-injector.istio.io"' in event["message"]
    assert not get(cluster, "pods", namespace)
    assert "istiod-canary" in refusal(cluster, namespace, plain_pod())


def test_a_pod_that_is_told_not_to_be_injected_needs_no_webhook(cluster, namespace):
    pod = apps.pod(namespace, "alone", python("app", SERVE, "8080"), labels={"sidecar.istio.io/inject": "false"})
    cluster.apply(pod)
    assert get(cluster, "pod", namespace, "alone")


def test_where_it_was_chosen_a_pod_runs_without_a_proxy(mesh, cluster, namespace, canary):
    """And is plain to see: no status, no proxy, no label of a meshed pod."""
    set_failure_policy(mesh, canary, "Ignore")
    try:
        until(lambda: applied(cluster, apps.pod(namespace, "bare", python("app", SERVE, "8080"))))
        mesh.wait(namespace, "pod/bare")
    finally:
        set_failure_policy(mesh, canary, "Fail")
    pod = get(cluster, "pod", namespace, "bare")
    assert STATUS not in pod["metadata"].get("annotations", {})
    assert "security.istio.io/tlsMode" not in pod["metadata"]["labels"]
    assert [each["name"] for each in pod["spec"]["containers"]] == ["app"]
    assert "initContainers" not in pod["spec"]


def applied(cluster, wanted):
    """The API server takes a moment to know a webhook's new policy."""
    try:
        cluster.apply(wanted)
    except Failed:
        return False
    return True


def set_failure_policy(mesh, revision, policy):
    """As `weft install --set injection.failurePolicy=…` does, without bringing the control plane back."""
    text = mesh.weft("manifest", "generate", "--revision", revision, "--set", f"injection.failurePolicy={policy}")
    (wanted,) = [each for each in yaml.safe_load_all(text) if each and each["kind"] == "MutatingWebhookConfiguration"]
    policies = [
        {"op": "replace", "path": f"/webhooks/{place}/failurePolicy", "value": each["failurePolicy"]}
        for place, each in enumerate(wanted["webhooks"])
    ]
    mesh.cluster.api.request("PATCH", CONFIGURATION + revision, policies, kind="application/json-patch+json")
    assert json.dumps(wanted).count(f'"{policy}"') == len(wanted["webhooks"])
