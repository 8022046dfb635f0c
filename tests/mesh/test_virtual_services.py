from model.builders import put, service
from weft.mesh.mesh import Mesh
from weft.model.names import ObjectKey
from weft.model.scope import Import, Scope
from weft.model.service import Protocol, Service, ServicePort
from weft.model.sidecar import EgressListener, Sidecar
from weft.model.virtual_service import Delegate, Destination, HttpRoute, L4Route, VirtualService, WeightedDestination

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


def test_a_delegate_touches_the_hosts_of_its_roots():
    mesh = Mesh()
    put(mesh, routes("root", ORDERS, http=(HttpRoute(delegate=Delegate("part", "shop")),)))
    assert put(mesh, routes("part")).hosts == {ORDERS}


def test_a_route_of_another_host_touches_the_headless_service_it_leads_to():
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


def test_a_hidden_service_can_be_called_through_visible_routes():
    hidden, deep = "hidden.far.svc.cluster.local", "deep.far.svc.cluster.local"
    to_hidden, to_deep = ((HttpRoute(route=(WeightedDestination(Destination(host)),)),) for host in (hidden, deep))
    mesh = Mesh()
    put(
        mesh,
        service("orders"),
        service("hidden", "far"),
        service("deep", "far"),
        service("own", "far", export_to=(".",)),
    )
    scope = Scope("shop", (Import("*", ORDERS),))
    leading = routes("orders", ORDERS, http=to_hidden)
    assert put(mesh, leading).hosts == {ORDERS}  # nobody hides anything
    put(mesh, Sidecar("default", "shop", egress=(EgressListener((f"*/{ORDERS}",)),)))
    root = routes("orders", ORDERS, http=(*to_hidden, HttpRoute(delegate=Delegate("leaf", "far"))))
    put(mesh, routes("leaf", namespace="far", http=to_deep))
    assert put(mesh, root).hosts == {ORDERS, hidden, deep}
    assert put(mesh, routes("leaf", namespace="far", http=to_deep, created="2026")).hosts == {ORDERS, deep}
    assert [mesh.hidden_service(host, scope).host for host in (hidden, deep)] == [hidden, deep]
    assert mesh.service(hidden, scope) is None
    assert mesh.hidden_service(hidden, SHOP) is None  # it is not hidden
    assert mesh.hidden_service(hidden, Scope("shop", (Import("*", "cart.shop.svc.cluster.local"),))) is None
    put(mesh, routes("orders", ORDERS, gateways=("shop/edge",), http=to_hidden))
    assert mesh.hidden_service(hidden, scope) is None
    put(mesh, routes("orders", ORDERS, export_to=("far",), http=to_hidden))
    assert mesh.hidden_service(hidden, scope) is None
    put(mesh, routes("orders", "*.svc.cluster.local", http=to_hidden))
    assert mesh.hidden_service(hidden, scope) is not None  # some of what it speaks for is shown
    put(
        mesh,
        routes(
            "orders", ORDERS, http=(HttpRoute(route=(WeightedDestination(Destination("own.far.svc.cluster.local")),)),)
        ),
    )
    assert mesh.hidden_service("own.far.svc.cluster.local", scope) is None  # exported to nobody here


def test_tls_routes_inside_a_wildcard_belong_to_the_nearest_visible_service():
    def partner(host, **more):
        return Service(host, host, "shop", (ServicePort(443, "tls", Protocol.TLS),), **more)

    wide, near = partner("*.partner.test"), partner("*.eu.partner.test")
    leaf = routes("leaf", "a.eu.partner.test", tls=(L4Route(),))
    mesh = Mesh()
    put(mesh, wide)
    assert put(mesh, routes("http", "b.partner.test")).hosts == {"b.partner.test"}
    assert put(mesh, leaf).hosts == {"a.eu.partner.test", wide.host}
    assert mesh.tls_routes_inside(wide, SHOP) == (leaf,)
    assert put(mesh, near).hosts == {near.host, wide.host}
    assert mesh.tls_routes_inside(wide, SHOP) == () and mesh.tls_routes_inside(near, SHOP) == (leaf,)
    mesh.apply(ObjectKey("VirtualService", "shop", "leaf"), ())
    assert mesh.tls_routes_inside(near, SHOP) == ()
