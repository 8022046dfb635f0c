from weft.model.group import Group, ProxyKind, group_of
from weft.model.instance import Instance, pod_of
from weft.model.names import labels_of
from weft.model.workload import Workload


def test_proxies_with_equal_inputs_are_one_group():
    one = Group(ProxyKind.SIDECAR, "shop", labels_of({"app": "orders", "version": "v1"}), "orders")
    same = Group(ProxyKind.SIDECAR, "shop", labels_of({"version": "v1", "app": "orders"}), "orders")
    assert one == same
    assert hash(one) == hash(same)
    assert str(one) == "sidecar:shop/orders"


def test_the_pods_of_a_workload_are_one_group():
    workload = Workload("orders-v1", "shop", ("run",), labels_of({"app": "orders"}), service_account="orders")
    assert group_of(workload) == Group(ProxyKind.SIDECAR, "shop", labels_of({"app": "orders"}), "orders")


def test_a_gateway_is_a_group_of_another_kind_than_a_sidecar_with_the_same_labels():
    workload = Workload("edge", "shop", (), labels_of({"app": "edge"}), gateway=True)
    assert group_of(workload).kind is ProxyKind.GATEWAY
    pod = pod_of(workload, "edge-0", ("10.0.0.1",))
    assert group_of(pod) == group_of(workload)
    assert pod.proxied and not pod.meshed  # callers who saw a sidecar in it would speak the mesh's TLS to plain HTTP
    assert not Instance("web-0", "shop", ("10.0.0.2",)).proxied
