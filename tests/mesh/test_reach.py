import random

from model.builders import put, service
from weft.mesh.mesh import Mesh
from weft.model.names import ObjectKey
from weft.model.on_demand import OnDemand
from weft.model.scope import Import, Scope
from weft.model.settings import Settings

SHOP = Scope("shop")
A, B = "a.shop.svc.cluster.local", "b.shop.svc.cluster.local"


def test_a_service_with_an_address_of_its_own_is_counted_from_where_it_is_seen():
    mesh = Mesh(few=1)
    put(mesh, service("a", addresses=("10.96.0.1",)), service("b", addresses=("10.96.0.2",), export_to=(".",)))
    put(mesh, service("headless", headless=True), service("nowhere"))
    assert mesh.reach(SHOP) == {A, B}
    assert mesh.reach(Scope("bank")) == {A}
    assert mesh.on_demand(SHOP).on and not mesh.on_demand(Scope("bank")).on


def test_who_is_named_is_told_of_anyway():
    mesh = Mesh()
    put(mesh, service("a", addresses=("10.96.0.1",)), service("b", addresses=("10.96.0.2",)))
    assert mesh.reach(Scope("shop", (Import("*", A), Import("*", "*")))) == {B}
    assert mesh.reach(Scope("shop", asked=((B, 80),))) == {A}


def test_a_range_that_comes_makes_others_countable():
    mesh = Mesh()
    entry = ObjectKey("ServiceEntry", "shop", "a")
    mesh.apply(entry, (service("a", addresses=("10.97.0.1",), origin=origin("ServiceEntry")),))
    assert mesh.reach(SHOP) == set()
    put(mesh, service("b", addresses=("10.97.0.2",)))
    assert mesh.reach(SHOP) == {A, B}


def test_the_setting_decides_alone_where_it_says_yes_or_no():
    mesh = Mesh(few=0)
    put(mesh, service("a", addresses=("10.96.0.1",)))
    for setting, on in ((OnDemand.AUTO, True), (OnDemand.OFF, False), (OnDemand.ON, True)):
        mesh.apply(ObjectKey("ConfigMap", "istio-system", "istio"), (Settings(on_demand=setting),))
        assert mesh.on_demand(SHOP).on is on


def test_whatever_comes_and_goes_it_is_as_if_it_were_counted_now():
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


def test_scopes_that_see_the_same_share_what_is_known_of_it():
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
