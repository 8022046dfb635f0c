import itertools

import pytest

from model.builders import group, instance, put, service
from weft.mesh.mesh import Mesh
from weft.mesh.touched import EVERYWHERE
from weft.model.names import labels_of
from weft.model.peer_authentication import PeerAuthentication, PeerModes, TlsMode, decider

STRICT, PERMISSIVE, DISABLE = TlsMode.STRICT, TlsMode.PERMISSIVE, TlsMode.DISABLE
ROOT = "istio-system"
APP = labels_of({"app": "orders"})


def policy(mode=None, namespace="shop", name="a", **more):
    return PeerAuthentication(name, namespace, mode=mode, **more)


def modes(*policies, namespace="shop"):
    mesh = Mesh()
    put(mesh, *policies)
    return mesh.peer_modes(namespace, APP)


def test_the_default_mode_is_permissive():
    assert modes() == PeerModes(PERMISSIVE)
    assert modes(policy(STRICT, "other")) == PeerModes(PERMISSIVE)


@pytest.mark.parametrize("levels", list(itertools.product((None, *TlsMode), repeat=3)))
def test_the_narrowest_level_that_sets_a_mode_decides(levels):
    mesh, namespace, workload = levels
    found = modes(policy(mesh, ROOT), policy(namespace), policy(workload, name="b", selector=APP))
    assert found.mode is (workload or namespace or mesh or PERMISSIVE)


def test_a_port_differs_from_its_workload_and_unset_inherits():
    found = modes(policy(STRICT), policy(name="b", selector=APP, ports=((80, DISABLE), (90, None))))
    assert (found.at(80), found.at(90), found.at(70)) == (DISABLE, STRICT, STRICT)


def test_within_a_level_the_oldest_decides():
    old, new = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"
    assert modes(policy(DISABLE, name="a", created=new), policy(STRICT, name="b", created=old)).mode is STRICT
    # Even one that says nothing: as in Istio, it is chosen first and asked then.
    assert modes(policy(DISABLE, name="a", created=new), policy(None, name="b", created=old)).mode is PERMISSIVE


def test_a_selector_in_the_root_namespace_selects_no_workload():
    assert modes(policy(STRICT, ROOT, selector=APP)).mode is PERMISSIVE
    assert modes(policy(STRICT, ROOT, selector=APP), namespace=ROOT).mode is PERMISSIVE
    assert modes(policy(STRICT, ROOT), namespace=ROOT).mode is STRICT


def test_a_removed_policy_no_longer_applies():
    mesh = Mesh()
    key = put_one(mesh, policy(STRICT))
    assert mesh.peer_modes("shop", APP).mode is STRICT
    mesh.apply(key, ())
    assert mesh.peer_modes("shop", APP).mode is PERMISSIVE


def test_a_policy_touches_callers_and_inbound_config_of_its_namespace():
    mesh = Mesh()
    put(mesh, service("orders"), service("cart"), service("wares", "other"))
    touched = put(mesh, policy(DISABLE))
    hosts = {"orders.shop.svc.cluster.local", "cart.shop.svc.cluster.local"}
    assert (touched.hosts, touched.inbound) == (hosts, {"shop"})
    touched = put(mesh, policy(STRICT, ROOT))
    assert (len(touched.hosts), touched.inbound) == (3, {EVERYWHERE})


def test_endpoints_have_tls_where_the_mode_allows_it():
    mesh = Mesh()
    put(
        mesh,
        service("orders"),
        instance("orders-0", "orders", meshed=True),
        instance("orders-1", "orders", address="10.244.0.2"),
        instance("orders-2", "orders", address="10.244.0.3", meshed=True, excluded_ports=(8080,)),
        instance(
            "orders-3",
            "orders",
            address="10.244.0.4",
            meshed=True,
            labels={"security.istio.io/tlsMode": "disabled"},
        ),
        instance("orders-4", "orders", address="10.244.0.5", meshed=True, labels={"old": "yes"}),
        policy(name="b", selector=labels_of({"old": "yes"}), ports=((8080, DISABLE),)),
    )
    found = next(mesh.services())
    assert [each.tls for each in mesh.endpoints(found, found.ports[0])] == [True, False, False, False, False]


def test_the_modes_of_a_group_follow_from_its_labels():
    mesh = Mesh()
    put(mesh, policy(STRICT, name="b", selector=APP))
    orders = group("orders")
    assert mesh.peer_modes(orders.namespace, orders.labels).mode is STRICT


def put_one(mesh, value):
    put(mesh, value)
    return next(key for key, _ in mesh.values())


@pytest.mark.parametrize("levels", list(itertools.product((None, *TlsMode), repeat=4)))
def test_the_decider_sets_the_effective_mode(levels):
    mesh, namespace, workload, port = levels
    policies = [
        policy(mesh, ROOT, "mesh"),
        policy(namespace, name="namespace"),
        policy(workload, name="workload", selector=APP, ports=((80, port),)),
    ]
    found = modes(*policies)
    for number in (0, 80, 90):
        deciding = decider(policies, ROOT, number)
        at = found.at(number)
        if deciding is None:
            assert at is PERMISSIVE
        else:
            assert at is (dict(deciding.ports).get(number) or deciding.mode)
