from model.builders import put, service
from weft.model.mesh import Mesh
from weft.model.names import ObjectKey
from weft.model.scope import Scope
from weft.model.virtual_service import Delegate, Destination, HttpRoute, VirtualService, WeightedDestination

ORDERS = "orders.shop.svc.cluster.local"
SHOP = Scope("shop")


def routes(name, *hosts, namespace="shop", **more):
    return VirtualService(name, namespace, hosts, **more)


def test_an_exact_host_beats_a_wildcard_and_the_oldest_decides():
    mesh = Mesh()
    put(mesh, routes("wide", "*.shop.svc.cluster.local"))
    assert [found.name for found in mesh.virtual_services(ORDERS, SHOP)] == ["wide"]
    put(mesh, routes("b", ORDERS, created="2026-01"), routes("a", ORDERS, created="2026-02"))
    assert [found.name for found in mesh.virtual_services(ORDERS, SHOP)] == ["b", "a"]


def test_routes_for_gateways_only_do_not_reach_sidecars():
    mesh = Mesh()
    put(mesh, routes("edge", ORDERS, gateways=("shop/edge",)))
    assert mesh.virtual_services(ORDERS, SHOP) == ()


def test_a_delegate_touches_the_hosts_of_those_who_delegate_to_it():
    mesh = Mesh()
    put(mesh, routes("root", ORDERS, http=(HttpRoute(delegate=Delegate("part", "shop")),)))
    assert put(mesh, routes("part")).hosts == {ORDERS}


def test_a_headless_service_learns_that_routes_of_others_lead_to_it():
    deep = "deep.shop.svc.cluster.local"
    to_deep = (HttpRoute(route=(WeightedDestination(Destination(deep)),)),)
    mesh = Mesh()
    put(mesh, service("deep", headless=True), service("wide"))
    assert not mesh.is_led_to(deep)
    put(mesh, routes("own", deep, http=to_deep), routes("edge", "a.example", gateways=("shop/edge",), http=to_deep))
    assert not mesh.is_led_to(deep)
    leading = routes("orders", ORDERS, http=to_deep)
    assert put(mesh, leading).hosts == {ORDERS, deep} and mesh.is_led_to(deep)
    assert mesh.apply(ObjectKey("VirtualService", "shop", "orders"), ()).hosts == {ORDERS, deep}
    assert not mesh.is_led_to(deep)
    to_wide = (HttpRoute(route=(WeightedDestination(Destination("wide.shop.svc.cluster.local")),)),)
    assert put(mesh, routes("orders", ORDERS, http=to_wide)).hosts == {ORDERS}
