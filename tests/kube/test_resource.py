import pytest

from weft.kube.error import KubeError
from weft.kube.resource import ENDPOINT_SLICES, NODES, PODS, ResourceKind, known, named

VIRTUAL_SERVICES = ResourceKind("networking.istio.io", "v1", "virtualservices", "VirtualService")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (PODS.path(), "/api/v1/pods"),
        (PODS.path("shop"), "/api/v1/namespaces/shop/pods"),
        (PODS.path("shop", "web-0"), "/api/v1/namespaces/shop/pods/web-0"),
        (PODS.path("shop", "web-0", "status"), "/api/v1/namespaces/shop/pods/web-0/status"),
        (NODES.path(name="one"), "/api/v1/nodes/one"),
        (NODES.path("ignored", "one"), "/api/v1/nodes/one"),
        (ENDPOINT_SLICES.path("shop"), "/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices"),
        (VIRTUAL_SERVICES.path(), "/apis/networking.istio.io/v1/virtualservices"),
    ],
)
def test_each_resource_has_its_path(path, expected):
    assert path == expected


def test_no_name_can_reach_another_path():
    assert (
        PODS.path("shop", "../../secrets/root?x=1#y")
        == "/api/v1/namespaces/shop/pods/..%2F..%2Fsecrets%2Froot%3Fx%3D1%23y"
    )
    with pytest.raises(KubeError):
        PODS.path("..", "secrets")
    with pytest.raises(KubeError):
        PODS.path("shop", "..")


def test_a_resource_is_shown_as_kubectl_and_rbac_name_it():
    assert str(PODS) == "pods"
    assert str(VIRTUAL_SERVICES) == "virtualservices.networking.istio.io"
    assert (PODS.api_version, VIRTUAL_SERVICES.api_version) == ("v1", "networking.istio.io/v1")


def test_the_usual_kinds_need_no_discovery():
    assert known("v1", "Pod") is PODS
    assert known("discovery.k8s.io/v1", "EndpointSlice") is ENDPOINT_SLICES
    assert known("example.org/v1", "Pod") is None


def test_a_reference_is_read_from_the_object():
    who = named({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "shop"}})
    assert str(who) == "Pod shop/web"
    assert str(named({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "one"}})) == "Node one"


@pytest.mark.parametrize(
    ("manifest", "missing"),
    [
        ({}, "apiVersion"),
        ({"apiVersion": "v1"}, "kind"),
        ({"apiVersion": "v1", "kind": "Pod"}, "metadata.name"),
        ({"apiVersion": "v1", "kind": "Pod", "metadata": "x"}, "metadata.name"),
        ({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": 5}}, "metadata.name"),
        ({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", "namespace": None}}, "metadata.namespace"),
    ],
)
def test_an_object_without_kind_or_name_cannot_be_sent(manifest, missing):
    with pytest.raises(KubeError, match=missing):
        named(manifest)
