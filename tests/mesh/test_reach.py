import random

from model.builders import put, service
from weft.mesh.mesh import Mesh
from weft.model.names import ObjectKey
from weft.model.on_demand import OnDemand
from weft.model.scope import Import, Scope
from weft.model.settings import Settings

SHOP = Scope("shop")
A, B = "a.shop.svc.cluster.local", "b.shop.svc.cluster.local"


def test_a_service_with_a_virtual_address_is_counted_where_it_is_visible():
    mesh = Mesh(few=1)
    put(mesh, service("a", addresses=("10.96.0.1",)), service("b", addresses=("10.96.0.2",), export_to=(".",)))
    put(mesh, service("headless", headless=True), service("nowhere"))
    assert mesh.reach(SHOP) == {A, B}
    assert mesh.reach(Scope("bank")) == {A}
    assert mesh.on_demand(SHOP).on and not mesh.on_demand(Scope("bank")).on


def test_hosts_that_a_sidecar_names_are_not_counted():
    mesh = Mesh()
    put(mesh, service("a", addresses=("10.96.0.1",)), service("b", addresses=("10.96.0.2",)))
    assert mesh.reach(Scope("shop", (Import("*", A), Import("*", "*")))) == {B}
    assert mesh.reach(Scope("shop", asked=((B, 80),))) == {A}


def test_a_new_range_makes_more_services_countable():
    mesh = Mesh()
    entry = ObjectKey("ServiceEntry", "shop", "a")
    mesh.apply(entry, (service("a", addresses=("10.97.0.1",), origin=origin("ServiceEntry")),))
    assert mesh.reach(SHOP) == set()
    put(mesh, service("b", addresses=("10.97.0.2",)))
    assert mesh.reach(SHOP) == {A, B}


def test_the_setting_true_or_false_decides_alone():
    mesh = Mesh(few=0)
    put(mesh, service("a", addresses=("10.96.0.1",)))
    for setting, on in ((OnDemand.AUTO, True), (OnDemand.OFF, False), (OnDemand.ON, True)):
        mesh.apply(ObjectKey("ConfigMap", "istio-system", "istio"), (Settings(on_demand=setting),))
        assert mesh.on_demand(SHOP).on is on


def test_the_incrementally_updated_reach_equals_a_recomputed_one():
    chance = random.Random(7)
    mesh = Mesh()
    scopes = [SHOP, Scope("bank"), Scope("bank", (Import("shop", "*"),)), Scope("shop", (Import("*", A),), ((B, 80),))]
    for _ in range(300):
        name, namespace = chance.choice("abc"), chance.choice(("shop", "bank"))
        value = service(
            name,
            namespace,
            addresses=chance.choice(((), ("10.96.0.1",), ("10.97.0.1",), ("10.96.0.2", "fd00::2"))),
            export_to=chance.choice(((), (".",), ("bank",))),
        )
        mesh.apply(ObjectKey("Service", namespace, name), (value,) if chance.random() < 0.7 else ())
        for scope in scopes:
            known = set(mesh.reach(scope))
            mesh.leave(scope)
            assert known == mesh.reach(scope)


def test_scopes_with_equal_reach_share_one_set():
    mesh = Mesh()
    put(mesh, service("a", addresses=("10.96.0.1",)))
    assert mesh.reach(SHOP) is mesh.reach(Scope("bank"))
    put(mesh, service("b", addresses=("10.96.0.2",)))
    assert mesh.reach(SHOP) is mesh.reach(Scope("bank")) and mesh.reach(SHOP) == {A, B}
    put(mesh, service("b", addresses=("10.96.0.2",), export_to=(".",)))
    assert (mesh.reach(SHOP), mesh.reach(Scope("bank"))) == ({A, B}, {A})


def origin(kind):
    from weft.model.names import Origin

    return Origin(ObjectKey(kind, "shop", "a"), "1")
