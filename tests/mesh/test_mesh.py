import msgspec
import pytest

from model.builders import group, instance, put, service
from weft.mesh.mesh import Mesh
from weft.mesh.touched import EVERYWHERE, Touched
from weft.model.group import Group, ProxyKind
from weft.model.names import ObjectKey, Origin, labels_of
from weft.model.scope import Scope
from weft.model.service import Protocol, Resolution, Service, ServicePort, StaticEndpoint
from weft.model.settings import Settings
from weft.model.sidecar import OutboundPolicy, Sidecar
from weft.model.virtual_service import Delegate, HttpRoute, VirtualService

SHOP = Scope("shop")
ORDERS = "orders.shop.svc.cluster.local"


def addresses(mesh, host=ORDERS):
    found = mesh.service(host, SHOP)
    return [endpoint.address for endpoint in mesh.endpoints(found, found.ports[0])]


def test_the_endpoints_of_a_service_are_the_ready_instances_it_selects():
    mesh = Mesh()
    put(
        mesh,
        service("orders"),
        instance("orders-0", "orders", address="10.0.0.1"),
        instance("orders-1", "orders", address="10.0.0.2", ready=False),
        instance("cart-0", "cart", address="10.0.0.3"),
        instance("orders-0", "orders", namespace="other", address="10.0.0.4"),
    )
    assert addresses(mesh) == ["10.0.0.1"]


def test_instances_that_come_before_their_service_are_found_too():
    mesh = Mesh()
    put(mesh, instance("orders-0", "orders", address="10.0.0.1"), service("orders"))
    assert addresses(mesh) == ["10.0.0.1"]


def test_becoming_ready_touches_only_the_endpoints_of_the_services_that_select_it():
    mesh = Mesh()
    put(mesh, service("orders"), service("cart"), instance("orders-0", "orders", ready=False, meshed=True))
    assert put(mesh, instance("orders-0", "orders", meshed=True)) == Touched(endpoints=frozenset({ORDERS}))


def test_the_first_instance_without_a_proxy_touches_the_host():
    mesh = Mesh()
    put(mesh, service("orders"), instance("orders-0", "orders", meshed=True))
    assert mesh.standing(mesh.service(ORDERS, SHOP)).meshed == (80,)
    touched = put(mesh, instance("orders-1", "orders", meshed=False))
    assert touched.hosts == {ORDERS}
    assert mesh.standing(mesh.service(ORDERS, SHOP)).meshed == ()


@pytest.mark.parametrize("passing_by", [{"excluded_ports": (8080,)}, {"included_ports": (9090,)}])
def test_a_port_that_one_instances_proxy_does_not_intercept_is_called_without_mesh_tls(passing_by):
    mesh = Mesh()
    put(mesh, service("orders"), instance("orders-0", "orders", meshed=True))
    touched = put(mesh, instance("orders-1", "orders", meshed=True, **passing_by))
    orders = mesh.service(ORDERS, SHOP)
    assert touched.hosts == {ORDERS}
    assert mesh.standing(orders).meshed == ()
    assert [endpoint.meshed for endpoint in mesh.endpoints(orders, orders.ports[0])] == [True, False]
    assert put(mesh, instance("orders-1", "orders", meshed=True, excluded_ports=(22,))).hosts == {ORDERS}
    assert mesh.standing(orders).meshed == (80,)


def test_relabelling_an_instance_moves_it_between_services():
    mesh = Mesh()
    put(mesh, service("orders"), service("cart"), instance("pod", "orders"))
    touched = put(mesh, instance("pod", "cart"))
    assert touched.endpoints == {ORDERS, "cart.shop.svc.cluster.local"}
    assert addresses(mesh) == []
    assert addresses(mesh, "cart.shop.svc.cluster.local") == ["10.244.0.1"]


def test_a_claim_keeps_its_members_when_another_claim_to_its_host_is_removed():
    mesh = Mesh()
    by_app = service("orders")
    renamed = msgspec.structs.replace(by_app, name="orders-again")
    by_team = msgspec.structs.replace(by_app, name="team", selector=labels_of({"team": "blue"}))
    blue = instance("cart-0", "cart", address="10.244.0.2", labels={"team": "blue"})
    put(mesh, instance("orders-0", "orders"), blue, by_app, renamed, by_team)

    def answering(claim):
        return [endpoint.instance for endpoint in mesh.endpoints(claim, claim.ports[0])]

    assert answering(by_app) == ["shop/orders-0"] and answering(by_team) == ["shop/cart-0"]
    mesh.apply(ObjectKey("Service", "shop", "orders"), ())
    assert answering(renamed) == ["shop/orders-0"] and answering(by_team) == ["shop/cart-0"]
    put(mesh, instance("orders-1", "orders"))
    assert answering(renamed) == ["shop/orders-0", "shop/orders-1"] and answering(by_team) == ["shop/cart-0"]


def test_named_target_ports_are_looked_up_in_each_instance():
    mesh = Mesh()
    put(mesh, service("orders", target="web"), instance("a", "orders", ports=(("web", 9000),)), instance("b", "orders"))
    found = mesh.service(ORDERS, SHOP)
    assert [(e.instance, e.port) for e in mesh.endpoints(found, found.ports[0])] == [("shop/a", 9000)]


def test_applying_the_same_value_again_touches_nothing():
    mesh = Mesh()
    put(mesh, service("orders"))
    assert not put(mesh, service("orders"))


def test_the_oldest_service_entry_owns_a_host_and_a_private_one_only_its_own_namespace():
    def entry(namespace, created, export_to=()):
        key = ObjectKey("ServiceEntry", namespace, "api")
        return key, Service(
            "api.example.com",
            "api",
            namespace,
            (ServicePort(80),),
            created=created,
            export_to=export_to,
            origin=Origin(key),
        )

    mesh = Mesh()
    for key, value in (entry("late", "2026-02"), entry("early", "2026-01"), entry("shop", "2026-03", (".",))):
        mesh.apply(key, (value,))
    assert mesh.service("api.example.com", Scope("elsewhere")).namespace == "early"
    assert mesh.service("api.example.com", SHOP).namespace == "shop"


def test_written_endpoints_use_their_own_ports():
    mesh = Mesh()
    entry = Service(
        "db.example.com",
        "db",
        "shop",
        (ServicePort(5432, "tcp", Protocol.TCP),),
        resolution=Resolution.STATIC,
        static_endpoints=(StaticEndpoint("10.1.1.1", (("tcp", 6432),)), StaticEndpoint("10.1.1.2")),
    )
    put(mesh, entry)
    assert [(e.address, e.port) for e in mesh.endpoints(entry, entry.ports[0])] == [
        ("10.1.1.1", 6432),
        ("10.1.1.2", 5432),
    ]


def test_a_root_sidecar_touches_every_scope():
    assert put(Mesh(), Sidecar("default", "istio-system")).scopes == {EVERYWHERE}
    assert put(Mesh(), Sidecar("default", "shop")).scopes == {"shop"}


def test_settings_touch_everything_and_return_to_the_default_when_removed():
    mesh = Mesh()
    key = ObjectKey("ConfigMap", "istio-system", "istio")
    assert mesh.apply(key, (Settings(outbound_policy=OutboundPolicy.REGISTRY_ONLY),)).scopes == {EVERYWHERE}
    assert mesh.outbound_policy(group("web")) is OutboundPolicy.REGISTRY_ONLY
    mesh.apply(key, ())
    assert mesh.outbound_policy(group("web")) is OutboundPolicy.ALLOW_ANY


def test_a_group_of_grpc_clients_sees_the_same_services():
    mesh = Mesh()
    put(mesh, service("orders"))
    assert mesh.scope(Group(ProxyKind.GRPC, "shop")).ports(mesh.service(ORDERS, SHOP))


def test_another_instance_of_the_same_profile_touches_no_inbound_config():
    mesh = Mesh()
    put(mesh, service("orders", target="web"))
    assert put(mesh, instance("orders-0", "orders", ports=(("web", 8080),))).inbound == {"shop"}
    assert not put(mesh, instance("orders-1", "orders", ports=(("web", 8080),))).inbound
    assert put(mesh, instance("orders-2", "orders", ports=(("web", 9090),))).inbound == {"shop"}


def test_a_delegate_has_no_hosts_and_is_exported_to_its_root():
    mesh = Mesh()
    route = HttpRoute(delegate=Delegate("leaf", "far"))
    root = VirtualService("root", "shop", ("app",), http=(route,))
    for export_to, hosts, taken in (
        ((), (), True),
        (("shop",), (), True),
        ((".",), (), False),
        (("far",), (), False),
        ((), ("leaf",), False),
    ):
        leaf = VirtualService("leaf", "far", hosts, export_to=export_to)
        put(mesh, leaf)
        assert (mesh.delegate(root, route) == leaf) is taken, (export_to, hosts)
    put(mesh, VirtualService("leaf", "far", ()))
    assert mesh.delegate(root, HttpRoute()) is None
    mesh.apply(ObjectKey("Settings", "", ""), (Settings(virtual_service_export_to=(".",)),))
    assert mesh.delegate(root, route) is None  # as the mesh exports what does not say it


def test_a_host_name_is_an_endpoint_only_with_dns_and_a_socket_only_without():
    mesh = Mesh()
    looked_up = service("looked-up", selector=labels_of({"app": "vm"}), resolution=Resolution.DNS)
    fixed = service("fixed", selector=labels_of({"app": "vm"}))
    put(
        mesh,
        looked_up,
        fixed,
        instance("plain", "vm"),
        instance("name", "vm", address="vm.example.com", named=True),
        instance("socket", "vm", address="unix:///run/vm"),
    )
    assert [each.instance for each in mesh.endpoints(looked_up, looked_up.ports[0])] == ["shop/name", "shop/plain"]
    assert [each.instance for each in mesh.endpoints(fixed, fixed.ports[0])] == ["shop/plain", "shop/socket"]
