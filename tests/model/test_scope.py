import pytest

from model.builders import service
from weft.model.scope import Scope, exported, scope_of
from weft.model.service import Protocol, ServicePort
from weft.model.sidecar import EgressListener, Sidecar


@pytest.mark.parametrize(
    ("export_to", "viewer", "seen"),
    [
        ((), "other", True),
        (("*",), "other", True),
        ((".",), "other", False),
        ((".",), "shop", True),
        (("other",), "other", True),
        (("~",), "shop", False),
    ],
)
def test_export_to_decides_who_sees_an_object(export_to, viewer, seen):
    assert exported(export_to, owner="shop", viewer=viewer) is seen


def sidecar(*hosts, port=None):
    return Sidecar("s", "shop", egress=(EgressListener(hosts, port),))


@pytest.mark.parametrize(
    ("hosts", "seen"),
    [
        (("./*",), True),
        (("*/*",), True),
        (("shop/orders.shop.svc.cluster.local",), True),
        (("shop/*.svc.cluster.local",), True),
        (("shop/cart.shop.svc.cluster.local",), False),
        (("other/*",), False),
        (("~/*",), False),
    ],
)
def test_egress_hosts_decide_what_a_sidecar_sees(hosts, seen):
    assert bool(scope_of("shop", sidecar(*hosts)).ports(service("orders"))) is seen


def test_an_egress_listener_with_a_port_shows_only_that_port():
    both = service("orders")
    assert scope_of("shop", sidecar("./*", port=ServicePort(80, protocol=Protocol.HTTP))).ports(both) == both.ports
    assert scope_of("shop", sidecar("./*", port=ServicePort(81, protocol=Protocol.HTTP))).ports(both) == ()


def test_without_a_sidecar_everything_exported_is_seen():
    assert scope_of("shop", None) == Scope("shop")
    assert Scope("other").ports(service("orders", export_to=(".",))) == ()


def test_whom_the_proxies_themselves_ask_is_seen_whatever_is_imported_or_exported():
    hidden = service("checker", "auth", export_to=(".",))
    assert scope_of("shop", sidecar("./*")).ports(hidden) == ()
    assert scope_of("shop", sidecar("./*"), asked=(hidden.host,)).ports(hidden) == hidden.ports
    assert scope_of("shop", None, asked=(hidden.host,)).ports(hidden) == hidden.ports
