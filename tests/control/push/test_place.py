from model.builders import group
from weft.control.push.place import Place, place_key, staying
from weft.model.scope import Scope
from weft.model.settings import Settings
from weft.model.sidecar import OutboundPolicy
from weft.translate.built import from_bytes
from weft.translate.view import GroupView


def view(policy=OutboundPolicy.ALLOW_ANY):
    return GroupView(group("web").kind, (), policy, Settings())


def test_groups_look_from_one_place_whatever_their_labels():
    one, other = (place_key(group(name), Scope("shop"), view()) for name in ("web", "orders"))
    assert one == other
    assert one != place_key(group("web"), Scope("bank"), view())
    assert one != place_key(group("web"), Scope("shop"), view(OutboundPolicy.REGISTRY_ONLY))


def test_a_place_knows_what_decides_about_it():
    place = Place(place_key(group("web"), Scope("shop"), view()), view(), lambda *asked: None)
    assert (place.scope, place.settings) == (Scope("shop"), Settings())


def test_what_goes_from_all_stays_with_a_group_that_has_it_itself():
    mine, added = from_bytes("m", "a", b"1"), from_bytes("m", "b", b"1")
    update = {"type": {"a": mine, "b": added, "c": None}}
    assert staying(update, {"type": {"a": None, "c": None, "d": None}}) == {"type": {"a": mine}}
    assert staying(update, {"type": {"a": mine}}) == {}
