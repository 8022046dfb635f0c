from weft.model.group import Group, ProxyKind
from weft.model.names import labels_of


def test_proxies_that_read_the_same_things_are_one_group():
    one = Group(ProxyKind.SIDECAR, "shop", labels_of({"app": "orders", "version": "v1"}), "orders")
    same = Group(ProxyKind.SIDECAR, "shop", labels_of({"version": "v1", "app": "orders"}), "orders")
    assert one == same
    assert hash(one) == hash(same)
    assert str(one) == "sidecar:shop/orders"
