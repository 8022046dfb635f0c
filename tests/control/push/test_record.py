import pytest

from model.builders import group
from weft.base.problem import Problem, Where
from weft.control.problems import Problems
from weft.control.push.join import ViewpointUpdate
from weft.control.push.record import RecordStep, staying
from weft.control.push.viewpoints import Viewpoints, viewpoint_key
from weft.mesh.mesh import Mesh
from weft.model.scope import Scope
from weft.model.settings import Settings
from weft.model.sidecar import OutboundPolicy
from weft.translate.built import from_bytes
from weft.translate.view import GroupView
from weft.xds.snapshot import Snapshots

WEB, CART = group("web"), group("cart")
ONE, TWO = from_bytes("m", "a", b"1"), from_bytes("m", "a", b"2")


def test_a_resource_removed_from_the_layer_stays_with_a_group_that_has_its_own():
    mine, added = from_bytes("m", "a", b"1"), from_bytes("m", "b", b"1")
    update = {"type": {"a": mine, "b": added, "c": None}}
    assert staying(update, {"type": {"a": None, "c": None, "d": None}}) == {"type": {"a": mine}}
    assert staying(update, {"type": {"a": mine}}) == {}


class Recorded:
    def __init__(self):
        self.snapshots, self.problems = Snapshots(), Problems()
        self.record = RecordStep(self.snapshots, self.problems)
        viewpoints = Viewpoints(Mesh())
        view = GroupView(WEB.kind, (), OutboundPolicy.ALLOW_ANY, Settings())
        self.viewpoint = viewpoints.at(viewpoint_key(WEB, Scope("shop"), view))
        moved = dict.fromkeys((WEB, CART), self.viewpoint)
        viewpoints.put(moved)
        self.record.push({self.viewpoint: common(ONE)}, {WEB: {}, CART: {}}, moved)

    def has(self, of):
        return self.snapshots.resources(of, "type").get("a")


def common(built):
    return ViewpointUpdate(frozenset(), {"type": {"a": built}}, frozenset())


@pytest.fixture
def recorded():
    return Recorded()


def test_what_is_common_is_recorded_once_for_all_groups(recorded):
    assert recorded.has(WEB) is recorded.has(CART) is ONE
    before = recorded.snapshots.push
    recorded.record.push({recorded.viewpoint: common(TWO)}, {}, {})
    assert recorded.has(WEB) is recorded.has(CART) is TWO and recorded.snapshots.push == before + 1


def test_a_resource_that_moves_to_a_group_is_never_removed(recorded, monkeypatch):
    seen = []
    update_layer = recorded.snapshots.update_layer

    def watched(layer, update):
        update_layer(layer, update)
        seen.append((recorded.has(WEB), recorded.has(CART)))

    monkeypatch.setattr(recorded.snapshots, "update_layer", watched)
    recorded.record.push({recorded.viewpoint: common(None)}, {WEB: {"type": {"a": TWO}}}, {})
    assert seen == [(TWO, None)]


def test_endpoints_are_recorded_for_viewpoints_and_groups(recorded):
    recorded.record.endpoints({recorded.viewpoint: {"type": {"a": TWO}}, CART: {"type": {"a": ONE}}})
    assert (recorded.has(WEB), recorded.has(CART)) == (TWO, ONE)


def test_problems_stay_until_the_host_has_none(recorded):
    problem = Problem(Where(), "what", "hint")
    recorded.record.problems({"orders": [problem]})
    assert recorded.problems.all() == (problem,)
    recorded.record.problems({"orders": []})
    assert recorded.problems.all() == ()


def test_a_group_that_is_dropped_has_nothing(recorded):
    recorded.record.drop(WEB)
    assert recorded.has(WEB) is None and recorded.has(CART) is ONE
