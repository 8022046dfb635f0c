"""All objects of an installation, applied to a real API server."""

import pytest
import yaml

from weft.install.manifests import as_yaml, manifests
from weft.install.values import Values, values_of
from weft.kube.resource import NAMESPACES, named


def test_referenced_objects_come_first_and_webhooks_last():
    kinds = [each["kind"] for each in manifests(Values())]
    assert kinds[0] == "Namespace"
    assert kinds.index("CustomResourceDefinition") < kinds.index("Deployment")
    assert kinds.index("ServiceAccount") < kinds.index("Deployment")
    assert kinds.index("CSIDriver") < kinds.index("DaemonSet")
    assert kinds[-2:] == ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"]


def test_two_revisions_share_only_the_namespace_and_the_kinds():
    one, other = ({named(each) for each in manifests(values_of({"revision": name}))} for name in ("default", "a"))
    assert {each.kind for each in one & other} == {"Namespace", "CustomResourceDefinition"}


def test_everything_of_a_revision_carries_its_label():
    for each in manifests(values_of({"revision": "a"})):
        if each["kind"] not in ("Namespace", "CustomResourceDefinition"):
            assert each["metadata"]["labels"]["istio.io/rev"] == "a"


def test_the_kinds_can_be_left_out():
    assert not [each for each in manifests(values_of({"crds": False})) if each["kind"] == "CustomResourceDefinition"]


def test_yaml_has_no_anchors_and_the_same_content():
    text = as_yaml(manifests(Values()))
    assert "&id" not in text
    assert list(yaml.safe_load_all(text)) == yaml.safe_load(yaml.safe_dump(_plain(manifests(Values()))))


def _plain(value):
    if isinstance(value, dict):
        return {name: _plain(held) for name, held in value.items()}
    return [_plain(each) for each in value] if isinstance(value, (list, tuple)) else value


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"revision": "a", "injection": {"redirectBy": "node", "byDefault": True}},
        {"node": {"kubeletRoot": "/k", "maxUnavailable": 1}, "imagePullSecrets": ["x"], "control": {"replicas": 5}},
    ],
    ids=["default", "revision", "chosen"],
)
def test_a_real_api_server_stores_every_object_unchanged(judge, given):
    for each in manifests(values_of(given)):
        _contains(judge.apply(each, dry_run=True), _plain(each), str(named(each)))


def _contains(stored, wanted, where):
    """Check that `stored` contains `wanted`. The server normalizes quantities; every other value must be equal."""
    if isinstance(wanted, dict):
        for name, held in wanted.items():
            assert name in stored or held in ({}, []), f"{where}.{name} was dropped"
            _contains(stored.get(name, held), held, f"{where}.{name}")
    elif isinstance(wanted, list):
        assert len(stored) == len(wanted), where
        for place, (one, other) in enumerate(zip(stored, wanted, strict=True)):
            _contains(one, other, f"{where}[{place}]")
    else:
        assert str(stored) == str(wanted), where


@pytest.fixture(scope="module")
def restricted(judge):
    """A namespace that accepts only pods of the pod security standard `restricted`."""
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    name = judge.server.make_namespace("restricted", labels)
    for account in ("weft-control", "weft-node"):
        judge.server.request("POST", f"/api/v1/namespaces/{name}/serviceaccounts", {"metadata": {"name": account}})
    yield name
    judge.remove(NAMESPACES, name)


def _pod(kind):
    found = next(each for each in manifests(Values()) if each["kind"] == kind)["spec"]["template"]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", **found["metadata"]}, "spec": found["spec"]}


def test_the_control_planes_pod_keeps_to_restricted(judge, restricted):
    judge.create(f"/api/v1/namespaces/{restricted}/pods", _pod("Deployment"))


def test_the_agents_pod_does_not_and_its_own_namespace_takes_it(judge, restricted):
    assert "restricted" in judge.refusal(f"/api/v1/namespaces/{restricted}/pods", _pod("DaemonSet"))
    judge.create("/api/v1/namespaces/istio-system/pods", _pod("DaemonSet"))
