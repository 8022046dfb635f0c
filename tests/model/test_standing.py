import pytest

from model.builders import instance, put, service
from weft.model.mesh import Mesh
from weft.model.names import labels_of
from weft.model.peer_authentication import PeerAuthentication, TlsMode
from weft.model.service import Service, ServicePort, StaticEndpoint
from weft.model.standing import Standing

ORDERS = "orders.shop.svc.cluster.local"


def pod(number, account="orders", **more):
    more = {"meshed": True, **more}
    return instance(f"orders-{number}", "orders", address=f"10.244.0.{number}", service_account=account, **more)


def standing(*values):
    mesh = Mesh()
    put(mesh, service("orders"), *values)
    return mesh.standing(next(mesh.services()))


def test_everyone_behind_it_has_a_proxy_and_an_account():
    assert standing(pod(1), pod(2, "legacy")) == Standing((80,), (80,), ("legacy", "orders"))


def test_those_that_are_not_ready_count_too():
    assert standing(pod(1, ready=False)).accounts == ("orders",)


def test_nobody_behind_it_has_no_account():
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
def test_one_that_is_different_counts_for_all(more, meshed, secured):
    found = standing(pod(1), pod(2, **more))
    assert (found.meshed, found.secured) == (meshed, secured)


def test_a_policy_for_some_of_them_counts_for_all():
    off = PeerAuthentication("a", "shop", labels_of({"old": "yes"}), TlsMode.DISABLE)
    assert standing(pod(1), pod(2), off).secured == (80,)
    assert standing(pod(1), pod(2, labels={"old": "yes"}), off).secured == ()
    assert standing(pod(1), PeerAuthentication("a", "shop", mode=TlsMode.DISABLE)).secured == ()


def test_written_endpoints_say_their_accounts():
    mesh = Mesh()
    ports, written = (ServicePort(80),), (StaticEndpoint("10.0.0.1", service_account="vm"), StaticEndpoint("10.0.0.2"))
    put(mesh, Service("a.b", "a", "shop", ports, static_endpoints=written))
    assert mesh.standing(next(mesh.services())) == Standing(accounts=("vm",))


def test_a_new_account_touches_how_the_host_is_called_and_another_pod_of_the_same_does_not():
    mesh = Mesh()
    put(mesh, service("orders"), pod(1))
    assert put(mesh, pod(2)).hosts == frozenset()
    assert put(mesh, pod(3, ready=False)).hosts == frozenset()
    assert put(mesh, pod(4, "legacy")).hosts == {ORDERS}
