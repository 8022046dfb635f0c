import pytest

from control.push.test_push import CART, EDGE, ORDERS, Rig, at_gateway, public, routes
from model.builders import group, put, service
from weft.mesh.touched import EVERYWHERE, Touched
from weft.model.destination_rule import DestinationRule
from weft.model.sidecar import EgressListener, Sidecar

WEB, BANK = group("web"), group("web", "bank")


@pytest.fixture
async def rig():
    rig = Rig()
    rig.put(service("orders"), service("cart"))
    for each in (WEB, group("cart"), BANK):
        rig.push.join(each)
    yield rig
    rig.push.close()


def change(rig, *values):
    touched = Touched()
    for value in values:
        touched |= put(rig.mesh, value)
    return rig.push._due.change(touched)


def looks(due):
    return {look.viewpoint.key.scope.namespace: look.hosts for look in due.looks}


async def test_a_changed_host_is_due_from_every_viewpoint_and_no_group_moves(rig):
    due = change(rig, routes("orders", ORDERS))
    assert due.hosts == {ORDERS} and looks(due) == {"shop": {ORDERS}, "bank": {ORDERS}}
    assert not due.views and not due.moves and not due.failed


async def test_hosts_whose_routes_name_a_changed_host_are_due_with_it(rig):
    rig.put(routes("cart", CART, to=ORDERS))
    assert change(rig, service("orders", port=81)).hosts == {ORDERS, CART}


async def test_a_wildcard_stands_for_the_hosts_it_covers(rig):
    wide = "*.shop.svc.cluster.local"
    assert change(rig, DestinationRule("all", "shop", wide)).hosts == {wide, ORDERS, CART}


async def test_a_namespace_with_a_new_scope_views_all_hosts_and_keeps_its_viewpoint(rig):
    viewpoint = rig.push._viewpoints.of(WEB)
    due = change(rig, Sidecar("default", "shop", egress=(EgressListener((f"./{CART}",)),)))
    assert looks(due) == {"shop": {ORDERS, CART}} and due.views.keys() == {WEB, group("cart")}
    assert not due.moves and rig.push._viewpoints.of(WEB) is viewpoint


async def test_a_group_with_a_new_key_moves_to_a_viewpoint_that_views_all_hosts(rig):
    due = change(rig, Sidecar("own", "shop", WEB.labels, egress=(EgressListener((f"./{CART}",)),)))
    target = due.moves[WEB]
    assert due.moves.keys() == {WEB} and not target.groups
    assert [look.hosts for look in due.looks if look.viewpoint is target] == [{ORDERS, CART}]


async def test_a_gateway_is_due_for_what_its_routes_name(rig):
    rig.put(public("*"), at_gateway("a", "a.com"))
    rig.push.join(EDGE)
    due = change(rig, at_gateway("a", "a.com", to="cart"))
    edge = next(look for look in due.looks if look.viewpoint is rig.push._viewpoints.of(EDGE))
    assert edge.hosts == {"a.com", ORDERS, CART}


async def test_a_group_whose_view_cannot_be_computed_is_named_and_the_others_are_due(rig, monkeypatch):
    views = rig.mesh.inbound_ports
    monkeypatch.setattr(rig.mesh, "inbound_ports", lambda of: 1 / 0 if of == WEB else views(of))
    due = rig.push._due.change(Touched(inbound=frozenset({EVERYWHERE})))
    assert due.failed.keys() == {WEB} and due.views.keys() == {group("cart"), BANK}


async def test_the_first_group_of_a_viewpoint_views_all_hosts_and_later_ones_none(rig):
    (look,) = rig.push._due.arrival(group("new", "elsewhere")).looks
    assert look.hosts == {ORDERS, CART}
    due = rig.push._due.arrival(group("new"))
    assert not due.looks and due.moves == {group("new"): rig.push._viewpoints.of(WEB)}


async def test_held_calls_may_continue(rig):
    due = rig.push._due.calls(WEB, ["10.96.0.1"])
    assert due.calling == {WEB: rig.push._viewpoints.of(WEB)} and due.held[WEB]
    assert all("10.96.0.1" in name for name in due.held[WEB])
