from weft.model.group import Group, ProxyKind, sidecar_group
from weft.model.names import labels_of
from weft.model.workload import Workload


def test_proxies_that_read_the_same_things_are_one_group():
    one = Group(ProxyKind.SIDECAR, "shop", labels_of({"app": "orders", "version": "v1"}), "orders")
    same = Group(ProxyKind.SIDECAR, "shop", labels_of({"version": "v1", "app": "orders"}), "orders")
    assert one == same
    assert hash(one) == hash(same)
    assert str(one) == "sidecar:shop/orders"


def test_the_pods_of_a_workload_are_one_group():
    workload = Workload("orders-v1", "shop", ("run",), labels_of({"app": "orders"}), service_account="orders")
    assert sidecar_group(workload) == Group(ProxyKind.SIDECAR, "shop", labels_of({"app": "orders"}), "orders")
