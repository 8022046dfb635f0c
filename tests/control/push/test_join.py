import pytest
from envoy.config.route.v3.route_components_pb2 import VirtualHost as EnvoyHost
from envoy.config.route.v3.route_pb2 import RouteConfiguration

from control.push.test_compiled import CLUSTER, LISTENER, ROUTE, built, names, url
from model.builders import group
from weft.control.push.contribute import NOTHING, OwnPiece, Pieces
from weft.control.push.join import GroupPieces, JoinStep
from weft.control.push.viewpoints import Viewpoints, viewpoint_key
from weft.mesh.mesh import Mesh
from weft.model.scope import Scope
from weft.model.settings import Settings
from weft.model.sidecar import OutboundPolicy
from weft.translate.contribution import Contribution, VirtualHost
from weft.translate.view import GroupView

WEB, CART = group("web"), group("cart")
VIEW = GroupView(WEB.kind, (), OutboundPolicy.ALLOW_ANY, Settings())
OWN = OwnPiece(VIEW, Contribution(listeners=(built(LISTENER, "virtualInbound"),)))


def http(host, cluster_content=""):
    fragment = RouteConfiguration(virtual_hosts=[EnvoyHost(name=host)]).SerializeToString()
    cluster = built(CLUSTER, f"outbound|80||{host}", cluster_content)
    return Contribution(clusters=(cluster,), hosts=(("80", VirtualHost(host, fragment)),))


def pieces(viewer, **contributions):
    assignments = dict.fromkeys(contributions, ())
    return Pieces(viewer, frozenset(contributions), contributions, assignments)


def of_groups(moved=(), own=(), hosts=(), held=()):
    return GroupPieces(dict(moved), dict(own), hosts, dict(held))


class Rig:
    def __init__(self):
        self.step, self.failed = JoinStep(), {}
        self.viewpoints = Viewpoints(Mesh())
        self.viewpoint = self.viewpoints.at(viewpoint_key(WEB, Scope("shop"), VIEW))
        self.first = self.common(a=http("a"))
        moved = dict.fromkeys((WEB, CART), self.viewpoint)
        self.viewpoints.put(moved)
        self.arrived = self.groups({}, moved=moved, own=dict.fromkeys(moved, OWN))

    def common(self, **contributions):
        return self.step.viewpoints([pieces(self.viewpoint, **contributions)], self.failed)

    def groups(self, common, **more):
        return self.step.groups(common, of_groups(**more), self.failed)


@pytest.fixture
def rig():
    return Rig()


def test_a_group_has_its_own_config_on_top_of_its_viewpoints(rig):
    update = rig.first[rig.viewpoint]
    assert update.rerouted == {"a"} == update.touched and set(names(update.update)[ROUTE]) == {"80"}
    assert {group: set(names(update)[LISTENER]) for group, update in rig.arrived.items()} == {
        WEB: {"virtualInbound"},
        CART: {"virtualInbound"},
    }
    assert rig.step.resource(WEB, url(ROUTE), "80") is rig.step.resource(CART, url(ROUTE), "80") is not None


def test_a_group_that_contributes_to_a_shared_resource_follows_its_changes(rig):
    rig.groups({}, hosts=[pieces(WEB, c=http("c"))])
    updates = rig.groups(rig.common(b=http("b")))
    assert set(names(updates[WEB])) == {ROUTE} and updates[CART] == {}


def test_hosts_with_the_same_routes_are_not_rerouted(rig):
    assert rig.common(a=http("a", cluster_content="new"))[rig.viewpoint].rerouted == frozenset()
    assert rig.common(a=NOTHING)[rig.viewpoint].rerouted == {"a"}


def test_calls_that_were_held_get_the_clusters_they_wait_for(rig):
    updates = rig.groups({}, held={WEB: ("hold|15001|10.96.0.1",)})
    assert [set(resources) for resources in updates[WEB].values()] == [{"hold|15001|10.96.0.1"}]


def test_endpoints_change_nothing_else(rig):
    assignment = built("e", "outbound|80||a", "1")
    updates = rig.step.assign({rig.viewpoint: {"a": (assignment,)}})
    assert names(updates[rig.viewpoint]) == {"e": {"outbound|80||a": "outbound|80||a=1"}}


def test_a_group_that_cannot_be_joined_is_named_and_the_others_are_joined(rig, monkeypatch):
    rejoin = rig.step._compiled[CART].rejoin
    monkeypatch.setattr(rig.step._compiled[WEB], "rejoin", lambda _hosts: 1 / 0)
    assert rig.groups(rig.common(b=http("b"))) == {CART: rejoin(frozenset())}
    assert isinstance(rig.failed[WEB], ZeroDivisionError)


def test_hosts_are_left_out_of_the_routes_of_one_group(rig):
    hosts, update = rig.step.suspend(WEB, "80", b"")
    assert set(hosts) == {"a"} and set(names(update)[ROUTE]) == {"80"}
    assert rig.step.is_suspended(WEB, "80", "a") and not rig.step.is_suspended(CART, "80", "a")
    assert names(rig.step.resume(WEB, "80", ["a"]))[ROUTE] == {"80": None}, "it is the common one again"


def test_nothing_is_left_of_a_viewer_that_is_forgotten(rig):
    rig.step.forget(WEB)
    assert rig.step.resource(WEB, url(ROUTE), "80") is None
    assert rig.step.suspend(WEB, "80", b"") == ({}, {}) and rig.step.resume(WEB, "80", ["a"]) == {}
