import pytest

from model.builders import instance, put, service
from weft.mesh.mesh import Mesh
from weft.mesh.service_members import Standing
from weft.model.destination_rule import DestinationRule, LoadBalancer, SimpleBalancer, TrafficPolicy
from weft.model.names import ObjectKey, labels_of
from weft.model.peer_authentication import PeerAuthentication, TlsMode
from weft.model.service import Service, ServicePort, StaticEndpoint

ORDERS = "orders.shop.svc.cluster.local"


def pod(number, account="orders", **more):
    more = {"meshed": True, **more}
    return instance(f"orders-{number}", "orders", address=f"10.244.0.{number}", service_account=account, **more)


def orders(*values):
    mesh = Mesh()
    put(mesh, service("orders"), *values)
    return mesh, next(mesh.services())


def standing(*values):
    mesh, found = orders(*values)
    return mesh.standing(found)


def ports(*values):
    """At which everyone takes the mesh's TLS."""
    mesh, found = orders(*values)
    return mesh.secured_ports(found)


def test_standing_has_the_meshed_ports_and_the_accounts():
    assert standing(pod(1), pod(2, "legacy")) == Standing((80,), ("legacy", "orders"))


def test_instances_that_are_not_ready_count_too():
    assert standing(pod(1, ready=False)).accounts == ("orders",)


def test_a_service_without_instances_has_no_accounts():
    assert standing().accounts == ()


@pytest.mark.parametrize(
    ("more", "meshed", "secured"),
    [
        ({"meshed": False}, (), ()),
        ({"excluded_ports": (8080,)}, (), ()),
        ({"included_ports": (9090,)}, (), ()),
        ({"excluded_ports": (9090,)}, (80,), (80,)),
        ({"labels": {"security.istio.io/tlsMode": "disabled"}}, (80,), ()),
    ],
)
def test_one_instance_without_a_proxy_makes_the_port_unmeshed(more, meshed, secured):
    assert standing(pod(1), pod(2, **more)).meshed == meshed
    assert ports(pod(1), pod(2, **more)) == secured


def test_a_policy_for_some_instances_decides_for_the_port():
    off = PeerAuthentication("a", "shop", labels_of({"old": "yes"}), TlsMode.DISABLE)
    assert ports(pod(1), pod(2), off) == (80,)
    assert ports(pod(1), pod(2, labels={"old": "yes"}), off) == ()
    assert ports(pod(1), PeerAuthentication("a", "shop", mode=TlsMode.DISABLE)) == ()


def test_an_instance_that_does_not_serve_the_port_does_not_count():
    mesh = Mesh()
    ports = (ServicePort(80, target="web"), ServicePort(90, target=90))
    put(mesh, Service(ORDERS, "orders", "shop", ports, selector=labels_of({"app": "orders"})))
    put(mesh, pod(1, ports=(("web", 8080),)), pod(2))
    assert mesh.secured_ports(next(mesh.services())) == (80, 90)
    put(mesh, pod(2, excluded_ports=(90,)))
    assert mesh.secured_ports(next(mesh.services())) == (80,)


def test_service_entry_endpoints_have_their_accounts():
    mesh = Mesh()
    ports, written = (ServicePort(80),), (StaticEndpoint("10.0.0.1", service_account="vm"), StaticEndpoint("10.0.0.2"))
    put(mesh, Service("a.b", "a", "shop", ports, static_endpoints=written))
    assert mesh.standing(next(mesh.services())) == Standing(accounts=("vm",))


def test_a_new_account_touches_the_host_and_another_pod_of_the_same_account_does_not():
    mesh = Mesh()
    put(mesh, service("orders"), pod(1))
    assert put(mesh, pod(2)).hosts == frozenset()
    assert put(mesh, pod(3, ready=False)).hosts == frozenset()
    assert put(mesh, pod(4, "legacy")).hosts == {ORDERS}


def test_a_removed_instance_no_longer_counts():
    mesh, found = orders(pod(1), pod(2, "legacy", meshed=False))
    assert mesh.standing(found) == Standing((), ("legacy", "orders"))
    put(mesh, pod(2, "orders"))
    assert mesh.standing(found) == Standing((80,), ("orders",))
    mesh.apply(ObjectKey("Instance", "shop", "orders-2"), ())
    mesh.apply(ObjectKey("Instance", "shop", "orders-1"), ())
    assert mesh.standing(found) == Standing((80,), ())


def test_with_a_passthrough_rule_each_new_pod_touches_the_host():
    mesh, _ = orders(pod(1))
    assert put(mesh, pod(2)).hosts == frozenset()
    policy = TrafficPolicy(load_balancer=LoadBalancer(SimpleBalancer.PASSTHROUGH))
    put(mesh, DestinationRule("r", "shop", "*.shop.svc.cluster.local", policy))
    assert put(mesh, pod(3)).hosts == {ORDERS}
