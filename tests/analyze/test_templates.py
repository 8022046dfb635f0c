"""Pods out of documents."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.analyze.templates import PLACES, template_of
from weft.api.document import Document
from weft.model.names import ObjectKey

POD = {
    "metadata": {"labels": {"app": "web", "bad": 1}, "annotations": {"a": "b"}},
    "spec": {
        "serviceAccountName": "web",
        "hostNetwork": True,
        "securityContext": {"runAsUser": 7},
        "volumes": [{"csi": {"driver": "csi.weft.dev"}}, {"emptyDir": {}}, "?"],
        "containers": [{"name": "app", "image": "app", "ports": [{"containerPort": 80, "name": "http"}, {}]}],
        "initContainers": [{"name": "setup"}, {"name": "istio-proxy", "restartPolicy": "Always"}],
    },
}


def document(kind, body):
    return Document(ObjectKey(kind, "shop", "web"), "v1", body)


@pytest.mark.parametrize("kind", PLACES)
def test_the_pod_template_of_every_kind_is_found(kind):
    body = POD
    for part in reversed(PLACES[kind]):
        body = {part: body}
    found = template_of(document(kind, body))
    assert found.labels == (("app", "web"),)
    assert (found.account, found.host_network, found.user) == ("web", True, 7)
    assert [each.name for each in found.containers] == ["app", "istio-proxy"]  # what ends does not count
    assert found.containers[0].ports == (("http", 80, "TCP"),)
    assert found.drivers == ("csi.weft.dev",)
    assert found.body() == POD
    assert found.proxy is found.containers[1]
    assert found.applications == found.containers[:1]


def test_other_kinds_have_no_pod_template():
    assert template_of(document("Service", POD)) is None


def test_a_running_pod_has_its_owner():
    made_by = {"metadata": {"ownerReferences": [{"kind": "ReplicaSet", "name": "web-1", "controller": True}]}}
    found = template_of(document("Pod", {**made_by, "status": {"phase": "Failed"}}))
    assert (found.owner, found.runs, found.over) == (("ReplicaSet", "web-1"), True, True)


JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(
    st.sampled_from(["metadata", "spec", "containers", "labels", "ports", "securityContext", "csi", "volumes"]), inner))  # fmt: skip


@given(JSON)
def test_a_malformed_template_never_raises(spec):
    assert template_of(document("Pod", {"metadata": spec, "spec": spec})) is not None
