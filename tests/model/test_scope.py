import pytest
from msgspec.structs import replace

from model.builders import service
from weft.model.scope import Import, Scope, exported, scope_of
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
def test_export_to_decides_which_namespaces_see_an_object(export_to, viewer, seen):
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


def test_an_egress_listener_sets_the_protocol_of_its_port():
    """Where it does not, and on other ports, the service does; nothing is said of datagrams."""
    ports = tuple(ServicePort(number, protocol=Protocol.HTTP) for number in (80, 81))

    def spoken(protocol, *, of=ports):
        scope = Scope("shop", (Import("*", "*", 80, protocol), Import("*", "*")))
        return [port.protocol for port in scope.ports(replace(service("orders"), ports=of))]

    assert spoken(Protocol.TCP) == [Protocol.TCP, Protocol.HTTP]
    assert spoken(Protocol.UNDECLARED) == [Protocol.HTTP, Protocol.HTTP]
    assert spoken(Protocol.TCP, of=(ServicePort(80, protocol=Protocol.UDP),)) == [Protocol.UDP]


def test_without_a_sidecar_everything_exported_is_seen():
    assert scope_of("shop", None) == Scope("shop")
    assert Scope("other").ports(service("orders", export_to=(".",))) == ()


def test_services_that_the_proxies_call_are_visible_whatever_is_imported_or_exported():
    hidden = service("checker", "auth", export_to=(".",))
    assert scope_of("shop", sidecar("./*")).ports(hidden) == ()
    assert scope_of("shop", sidecar("./*"), asked=((hidden.host, 80),)).ports(hidden) == hidden.ports
    assert scope_of("shop", None, asked=((hidden.host, 80),)).ports(hidden) == hidden.ports


def test_only_the_called_port_of_a_service_that_the_proxies_call_is_visible():
    first, second, third = (ServicePort(number, protocol=Protocol.HTTP) for number in (80, 81, 82))
    many = replace(service("orders"), ports=(first, second, third))
    asked = ((many.host, 81),)
    assert scope_of("shop", sidecar("far/*"), asked).ports(many) == (second,)
    narrow = sidecar("./*", port=ServicePort(80, protocol=Protocol.TCP))
    assert scope_of("shop", narrow, asked).ports(many) == (replace(first, protocol=Protocol.TCP), second)
    assert scope_of("shop", None, asked).ports(many) == many.ports


def test_a_listener_with_an_address_of_its_own_takes_the_service_from_its_own_addresses():
    own = EgressListener(("./orders.shop.svc.cluster.local",), ServicePort(7000), "127.0.0.1", captured=False)
    everything = Sidecar("x", "shop", egress=(own,))
    scope, orders = scope_of("shop", everything), service("orders")
    assert [port.number for port in scope.ports(orders)] == [port.number for port in orders.ports] == [80]
    assert scope.addressed(orders) == ()
    assert [(each.at.address, each.number, each.port.number) for each in scope.own_listeners(orders)] == [
        ("127.0.0.1", 7000, 80)
    ]
    both = scope_of("shop", Sidecar("x", "shop", egress=(own, EgressListener(("./*",)))))
    assert both.addressed(orders) == orders.ports and len(both.own_listeners(orders)) == 1
    two = replace(orders, ports=(ServicePort(80), ServicePort(81)))
    assert scope.own_listeners(two) == () == scope.ports(two)
    assert [each.port.number for each in scope_of(
        "shop", Sidecar("x", "shop", egress=(replace(own, port=None),))
    ).own_listeners(two)] == [80, 81]  # fmt: skip
    assert scope.own_listeners(replace(orders, headless=True)) == ()
    assert scope.own_listeners(replace(orders, namespace="far", host="other.far.svc.cluster.local")) == ()
