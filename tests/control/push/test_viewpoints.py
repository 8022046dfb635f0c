import pytest

from model.builders import group
from weft.control.push.viewpoints import Viewpoints, viewpoint_key
from weft.mesh.mesh import Mesh
from weft.model.scope import Scope
from weft.model.settings import Settings
from weft.model.sidecar import OutboundPolicy
from weft.translate.view import GroupView

WEB, CART, ORDERS = group("web"), group("cart"), group("orders")


def view(policy=OutboundPolicy.ALLOW_ANY):
    return GroupView(group("web").kind, (), policy, Settings())


def key(namespace="shop", policy=OutboundPolicy.ALLOW_ANY):
    return viewpoint_key(WEB, Scope(namespace), view(policy))


def test_groups_share_a_viewpoint_whatever_their_labels():
    one, other = (viewpoint_key(group(name), Scope("shop"), view()) for name in ("web", "orders"))
    assert one == other
    assert one != viewpoint_key(group("web"), Scope("bank"), view())
    assert one != viewpoint_key(group("web"), Scope("shop"), view(OutboundPolicy.REGISTRY_ONLY))


def test_a_viewpoint_has_the_scope_and_settings_of_its_key():
    viewpoint = Viewpoints(Mesh()).at(viewpoint_key(group("web"), Scope("shop"), view()))
    assert (viewpoint.key.scope, viewpoint.key.settings) == (Scope("shop"), Settings())


def looking(*groups):
    viewpoints = Viewpoints(Mesh())
    viewpoint = viewpoints.at(key())
    viewpoints.put(dict.fromkeys(groups, viewpoint))
    return viewpoints, viewpoint


def test_only_the_registry_writes_a_viewpoint():
    _, viewpoint = looking(WEB)
    with pytest.raises(AttributeError):
        viewpoint.key = key("bank")


def test_a_viewpoint_takes_the_key_that_all_of_its_groups_have_now():
    viewpoints, viewpoint = looking(WEB, CART)
    moves = viewpoints.move({WEB: key("bank"), CART: key("bank")})
    assert moves.rekeyed == {viewpoint} and not moves.groups
    assert viewpoint.key == key("bank") and viewpoints.at(key("bank")) is viewpoint


def test_groups_with_a_new_key_move_to_another_viewpoint():
    viewpoints, viewpoint = looking(WEB, CART, ORDERS)
    moves = viewpoints.move({WEB: key("bank"), CART: key()})
    assert not moves.rekeyed and moves.groups.keys() == {WEB}
    target = moves.groups[WEB]
    assert target is not viewpoint and not target.groups, "nobody has moved yet"
    assert viewpoints.put(moves.groups) == [viewpoint]
    assert viewpoints.of(WEB) is target and set(viewpoint.groups) == {CART, ORDERS}


def test_groups_that_get_an_existing_key_join_its_viewpoint():
    viewpoints, viewpoint = looking(WEB)
    viewpoints.put({CART: viewpoints.at(key("bank"))})
    moves = viewpoints.move({WEB: key("bank")})
    assert moves.groups == {WEB: viewpoints.of(CART)}
    viewpoints.put(moves.groups)
    assert not viewpoint.groups and viewpoints.all() == (viewpoints.of(CART),)


def test_a_viewpoint_is_dropped_with_its_last_group():
    viewpoints, viewpoint = looking(WEB)
    assert viewpoints.remove(WEB) == [viewpoint]
    assert viewpoints.remove(WEB) == [] and not viewpoints.all() and not viewpoints.groups()
    unused = viewpoints.at(key())
    viewpoints.discard_unused(unused)
    viewpoints.discard_unused(unused)
    assert not viewpoints.all()
