import msgspec
import pytest

from model.builders import group, instance, put, service
from weft.mesh.mesh import Mesh
from weft.model.credential import Credential
from weft.model.destination_rule import (
    ClientTls,
    ClientTlsMode,
    ConsistentHash,
    DestinationRule,
    HashKey,
    LoadBalancer,
    Subset,
    TrafficPolicy,
)
from weft.model.gateway import Gateway, GatewayServer
from weft.model.group import Group, ProxyKind
from weft.model.names import labels_of
from weft.model.service import Protocol, Service, ServicePort
from weft.model.virtual_service import (
    Destination,
    HttpMatch,
    HttpRoute,
    Mirror,
    VirtualService,
    WeightedDestination,
    destinations,
)
from weft.translate.view import depends_on_labels, group_view, offering_http, service_view

ORDERS, STOCK = "orders.shop.svc.cluster.local", "stock.shop.svc.cluster.local"
SIMPLE = ClientTls(ClientTlsMode.SIMPLE)


def _seen(mesh, caller="frontend", host=ORDERS):
    asking = group(caller)
    return service_view(mesh, asking, mesh.scope(asking), host)


def _routing(*matches, destination=STOCK):
    route = HttpRoute(match=matches, route=(WeightedDestination(Destination(destination)),))
    return VirtualService("orders", "shop", (ORDERS,), http=(route,))


def test_callers_share_a_view_unless_a_route_matches_their_labels():
    mesh = Mesh()
    put(mesh, service("orders"), service("stock"), _routing())
    assert _seen(mesh, "a") == _seen(mesh, "b")
    put(mesh, _routing(HttpMatch(source_labels=labels_of({"app": "a"}))))
    assert _seen(mesh, "a") != _seen(mesh, "b")


def test_a_view_depends_on_labels_where_a_route_or_rule_selects_by_them():
    mesh = Mesh()
    put(mesh, service("orders"), service("stock"), _routing())
    assert not depends_on_labels(mesh, _seen(mesh), "shop")
    put(mesh, DestinationRule("stock", "shop", STOCK, workload_selector=labels_of({"app": "a"})))
    assert depends_on_labels(mesh, _seen(mesh, "b"), "shop"), "though it is not for this one"
    assert not depends_on_labels(mesh, _seen(mesh, "b"), "front"), "it is for callers of its own namespace"
    put(mesh, DestinationRule("stock", "shop", STOCK))
    assert not depends_on_labels(mesh, _seen(mesh), "shop")
    put(mesh, _routing(HttpMatch(source_labels=labels_of({"app": "a"}))))
    assert depends_on_labels(mesh, _seen(mesh, "b"), "shop")


def test_a_view_reads_the_hosts_that_its_routes_name():
    mesh = Mesh()
    put(mesh, service("orders"), _routing())
    assert _seen(mesh).host == ORDERS and [target.host for target in _seen(mesh).targets] == [STOCK]
    assert not _seen(mesh).target(STOCK).known
    put(mesh, service("stock"))
    assert _seen(mesh).target(STOCK).ports == (80,)


def test_another_hosts_rule_is_read_only_for_its_hash_and_subsets():
    mesh = Mesh()
    put(mesh, service("orders"), service("stock"), _routing())
    put(mesh, DestinationRule("stock", "shop", STOCK, TrafficPolicy(), (Subset("v1"),)))
    assert _seen(mesh).target(STOCK).rule is None and _seen(mesh).target(STOCK).subsets == ("v1",)
    hashing = TrafficPolicy(LoadBalancer(consistent_hash=ConsistentHash(HashKey.SOURCE_IP)))
    put(mesh, DestinationRule("stock", "shop", STOCK, hashing))
    assert _seen(mesh).target(STOCK).rule is not None


@pytest.mark.parametrize(
    ("rule", "ports"),
    [
        (None, (80, 81)),
        ({"policy": TrafficPolicy(tls=SIMPLE)}, ()),
        ({"policy": TrafficPolicy(ports=((80, TrafficPolicy(tls=SIMPLE)),))}, (81,)),
        ({"policy": TrafficPolicy(ports=((99, TrafficPolicy(tls=SIMPLE)),))}, (80, 81)),
        ({"subsets": (Subset("v1", policy=TrafficPolicy(ports=((81, TrafficPolicy(tls=SIMPLE)),))),)}, (80,)),
    ],
)
def test_ports_with_tls_of_a_rule_do_not_offer_the_meshs_alpn(rule, ports):
    many = msgspec.structs.replace(service("orders"), ports=(ServicePort(80), ServicePort(81)))
    assert offering_http(many, DestinationRule("r", "shop", many.host, **rule) if rule is not None else None) == ports


def test_mirrors_are_destinations_too():
    route = HttpRoute(mirrors=(Mirror(Destination("audit")),))
    routing = VirtualService("a", "shop", ("a",), http=(route,))
    assert [found.host for _, found in destinations(routing)] == ["audit"]


def test_an_unknown_host_has_no_view():
    assert _seen(Mesh()) is None


def test_a_group_reads_its_own_ports():
    mesh = Mesh()
    put(mesh, service("orders"), instance("orders-0", "orders"))
    assert [port.number for port in group_view(mesh, group("orders")).inbound] == [8080]


def test_the_endpoints_of_a_headless_service_are_those_of_its_tcp_ports():
    mesh = Mesh()
    ports = (ServicePort(53, "dns-tcp", Protocol.TCP, 5353), ServicePort(53, "dns", Protocol.UDP, 5454))
    put(mesh, msgspec.structs.replace(service("orders", headless=True), ports=ports), instance("orders-0", "orders"))
    ((number, (found,)),) = _seen(mesh).endpoints
    assert (number, found.port) == (53, 5353)


@pytest.mark.parametrize(
    ("kind", "selector", "held", "closed"),
    [
        (ProxyKind.GATEWAY, (), True, False),
        (ProxyKind.GATEWAY, (), False, True),
        (ProxyKind.SIDECAR, (), True, True),
        (
            ProxyKind.SIDECAR,
            labels_of({"app": "web"}),
            True,
            True,
        ),  # it might be a gateway's, brought to a pod of theirs
        (ProxyKind.GRPC, labels_of({"app": "web"}), True, True),  # an application is no place for the mesh's keys
    ],
)
def test_only_gateways_get_secrets(kind, selector, held, closed):
    mesh, caller = Mesh(), Group(kind, "shop", labels_of({"app": "web"}))
    tls = ClientTls(ClientTlsMode.MUTUAL, credential="partner")
    port = TrafficPolicy(tls=tls)
    rule = DestinationRule(
        "out",
        "shop",
        "api.com",
        TrafficPolicy(ports=((80, port),)),
        (Subset("v1", policy=port),),
        workload_selector=selector,
    )
    route = HttpRoute(route=(WeightedDestination(Destination("api.com")),))
    put(
        mesh,
        Service("api.com", "api", "shop", (ServicePort(80, "http", Protocol.HTTP),), external=True),
        rule,
        Gateway("edge", "shop", (GatewayServer(ServicePort(80, "http", Protocol.HTTP), ("*",)),)),
        VirtualService("edge", "shop", ("a.com",), ("shop/edge",), http=(route,)),
    )
    if held:
        touched = put(mesh, Credential("shop", "partner", b"chain", b"key", b"roots"))
        assert touched.hosts == {"api.com"}
    found = service_view(mesh, caller, mesh.scope(caller), "api.com")
    said = found.rule.policy.ports[0][1].tls, found.rule.subsets[0].policy.tls
    assert [each.mode is ClientTlsMode.CLOSED for each in said] == [closed, closed]
    assert len(found.credentials) == (0 if closed else 1)
