import pytest

from weft.control.node_metadata import UnknownProxy, group_of, pod_of
from weft.model.group import Group, ProxyKind
from weft.model.names import labels_of

NODE = "sidecar~10.244.0.1~frontend-v1-0.shop~shop.svc.cluster.local"


def test_a_sidecars_group_is_its_namespace_labels_and_account():
    metadata = {"NAMESPACE": "shop", "LABELS": {"app": "frontend"}, "SERVICE_ACCOUNT": "frontend"}
    assert group_of(NODE, metadata) == Group(ProxyKind.SIDECAR, "shop", labels_of({"app": "frontend"}), "frontend")


def test_the_namespace_comes_from_the_node_id_if_not_in_the_metadata():
    assert group_of(NODE, {}).namespace == "shop"


def test_the_locality_of_a_proxy_is_that_of_its_xds_node():
    assert group_of(NODE, {}, "eu/eu-a").locality == "eu/eu-a"


def test_grpcs_own_client_is_known_by_its_generator():
    assert group_of(NODE, {"GENERATOR": "grpc"}).kind is ProxyKind.GRPC


def test_a_router_is_a_gateway():
    assert group_of(NODE.replace("sidecar", "router"), {}).kind is ProxyKind.GATEWAY


def test_a_pods_name_is_in_the_metadata_or_the_node_id():
    assert pod_of(NODE, {}) == "frontend-v1-0"
    assert pod_of(NODE, {"POD_NAME": "web-0"}) == "web-0"


@pytest.mark.parametrize(
    ("node_id", "metadata"),
    [
        ("envoy", {}),
        ("", {}),
        ("waypoint~1~a.b~c", {}),
        ("sidecar~1~~", {}),
        (NODE, {"LABELS": [1]}),
        (NODE, {"NAMESPACE": 7}),
        (NODE, {"LABELS": {str(n): "" for n in range(200)}}),
    ],
)
def test_rejects_incomplete_nodes(node_id, metadata):
    with pytest.raises(UnknownProxy):
        group_of(node_id, metadata)
