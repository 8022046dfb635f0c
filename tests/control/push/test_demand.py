"""On-demand groups, which get a service when they call it."""

import asyncio
import random
import re

import pytest
from envoy.config.listener.v3.listener_pb2 import Listener

from control.push.test_push import CART, HISTORIES, ORDERS, Rig
from model.builders import group, service
from weft.control.push.demand import Demand
from weft.mesh.calls import CallReason, Calls
from weft.mesh.mesh import Mesh
from weft.model.names import ObjectKey, Origin
from weft.model.on_demand import OnDemand
from weft.model.service import Protocol
from weft.model.settings import Settings
from weft.model.sidecar import EgressListener, OutboundPolicy, Sidecar
from weft.model.virtual_service import Destination, HttpRoute, VirtualService, WeightedDestination
from weft.translate import hold
from weft.translate.names import held as names_of
from weft.xds.types import CLUSTER, LISTENER, ROUTE

WEB = group("web")
ON = Settings(on_demand=OnDemand.ON)
DB, LATE = "db.shop.svc.cluster.local", "late.shop.svc.cluster.local"
LATER = service("late", addresses=("10.96.0.9",))


@pytest.fixture
async def rig():
    rig = Rig()
    set_to(rig, ON)
    yield rig
    rig.push.close()


def set_to(rig, settings):
    rig.push.touch(rig.mesh.apply(ObjectKey("ConfigMap", "istio-system", "istio"), (settings,)))
    rig.push.flush()


def clusters(rig, of=WEB):
    """Return the hosts of a group's outbound clusters, and the names of held clusters."""
    return {name.rpartition("|")[2] for name in rig.snapshots.resources(of, CLUSTER) if name.count("|") in (2, 3)} - {
        ""
    }


def listener_names(rig, of=WEB):
    return rig.snapshots.resources(of, LISTENER).keys()


def held_by(rig, of=WEB):
    """Return the listeners of a group that hold calls."""
    found = rig.snapshots.resources(of, LISTENER)
    listeners = [(name, Listener.FromString(each.body)) for name, each in found.items()]
    return {name for name, each in listeners if any(chain.name == "hold" for chain in each.filter_chains)}


def routes(name, host, *targets):
    route = HttpRoute(route=tuple(WeightedDestination(Destination(target)) for target in targets))
    return VirtualService(name, "shop", hosts=(host,), http=(route,))


def shop(rig):
    rig.put(
        service("orders", addresses=("10.96.0.1",)),
        service("cart", addresses=("10.96.0.2", "fd00::2")),
        service("db", protocol=Protocol.TCP, port=3306, addresses=("10.96.0.3",)),
    )
    rig.push.join(WEB)


async def test_a_group_has_nothing_of_a_service_until_it_calls_its_address(rig):
    shop(rig)
    assert clusters(rig) == set()
    rig.push.call(WEB, ["hold|15001|10.96.0.1"], soon=False)
    assert clusters(rig) == {ORDERS, "10.96.0.1"}
    assert {"10.96.0.1_80", "virtualOutbound"} <= rig.snapshots.resources(WEB, LISTENER).keys()
    assert "80" in rig.snapshots.resources(WEB, ROUTE)


async def test_a_call_to_one_address_family_brings_the_listeners_of_both(rig):
    shop(rig)
    rig.push.call(WEB, ["hold|15001|fd00::2"], soon=False)
    assert clusters(rig) == {CART, "fd00::2"}
    assert {"10.96.0.2_80", "fd00::2_80"} <= rig.snapshots.resources(WEB, LISTENER).keys()


async def test_calls_of_one_turn_are_one_push_and_known_calls_are_none(rig):
    shop(rig)
    before = rig.snapshots.push
    for name in ("hold|15001|10.96.0.1", "hold|15001|10.96.0.2", "hold|15001|10.96.0.1"):
        rig.push.call(WEB, [name])
    assert rig.snapshots.push == before
    await asyncio.sleep(0)
    assert rig.snapshots.push == before + 1
    rig.push.call(WEB, ["hold|15001|10.96.0.1"])
    await asyncio.sleep(0)
    assert rig.snapshots.push == before + 1


async def test_a_service_added_at_a_called_address_is_sent_though_the_caller_has_moved_to_another_viewpoint(rig):
    """Otherwise the call would continue without a listener, and leave the pod unprotected."""
    shop(rig)
    rig.push.join(group("other"))
    rig.push.call(WEB, ["hold|15001|10.96.0.9"], soon=False)
    rig.put(Sidecar("alone", "shop", selector=WEB.labels, outbound_policy=OutboundPolicy.REGISTRY_ONLY), LATER)
    assert LATE in clusters(rig) and "10.96.0.9_80" in listener_names(rig)


@pytest.mark.parametrize("other", [Sidecar("all", "shop"), service("far", addresses=("10.99.0.1",))])
async def test_a_called_service_that_was_deleted_is_removed_when_all_hosts_are_viewed_again(rig, other):
    shop(rig)
    rig.push.call(WEB, ["hold|15001|10.96.0.1"], soon=False)
    rig.push.touch(rig.mesh.apply(ObjectKey("Service", "shop", "orders"), ()))
    rig.put(other)
    assert ORDERS not in clusters(rig) and "10.96.0.1_80" not in listener_names(rig)


async def test_a_service_shown_to_all_stays_with_existing_groups_when_a_new_range_covers_it(rig):
    """A proxy may have called the service, which is not recorded."""
    entry = Origin(ObjectKey("ServiceEntry", "shop", "ext"), "", "ext.yaml", 1)
    shop(rig)
    rig.put(service("ext", addresses=("10.99.0.7",), origin=entry))
    host = "ext.shop.svc.cluster.local"
    assert host in clusters(rig)
    rig.put(service("near", addresses=("10.99.0.1",)))
    assert host in clusters(rig)
    rig.push.join(group("new"))
    assert host not in clusters(rig, group("new"))


async def test_a_service_shown_to_all_stays_with_existing_groups_when_it_gets_a_unique_address(rig):
    entry = Origin(ObjectKey("ServiceEntry", "shop", "ext"), "", "ext.yaml", 1)
    host = "ext.shop.svc.cluster.local"
    shop(rig)
    rig.put(service("ext", selector=None, external=True, origin=entry))
    assert host in clusters(rig)
    rig.put(service("ext", selector=None, external=True, addresses=("10.96.0.50",), origin=entry))
    assert host in clusters(rig) and "10.96.0.50_80" in listener_names(rig)
    rig.push.join(group("new"))
    assert host not in clusters(rig, group("new"))
    before = rig.versions(WEB)
    rig.put(service("ext", selector=None, external=True, addresses=("10.96.0.50",), origin=entry))
    assert rig.versions(WEB) == before and len(rig.push._viewpoints.all()) == 2
    rig.push.touch(rig.mesh.apply(ObjectKey("Service", "shop", "ext"), ()))
    rig.push.flush()
    assert host not in clusters(rig), "it is gone"


async def test_a_called_hidden_service_is_sent_once_the_caller_may_see_it(rig):
    """The caller moves to an existing viewpoint, or to a new one."""
    alone = Sidecar("alone", "shop", selector=WEB.labels, egress=(EgressListener(("./*",)),))
    shop(rig)
    rig.put(service("far", "bank", addresses=("10.96.0.8",)), alone)
    rig.push.join(group("other"))
    rig.push.call(WEB, ["hold|15001|10.96.0.8"], soon=False)
    assert "10.96.0.8_80" not in listener_names(rig)
    rig.push.touch(rig.mesh.apply(ObjectKey("Sidecar", "shop", "alone"), ()))
    rig.push.flush()
    assert "10.96.0.8_80" in listener_names(rig) and "far.bank.svc.cluster.local" in clusters(rig)


async def test_enabling_on_demand_in_an_empty_mesh_applies_to_its_first_group():
    rig = Rig()
    open_ranges(rig.mesh)
    rig.push.join(WEB)
    set_to(rig, ON)
    rig.put(service("cart", "bank"))
    assert held_by(rig) == {"virtualOutbound", "0.0.0.0_80"}
    rig.push.close()


async def test_a_group_whose_held_call_cannot_be_released_delays_no_other(rig, monkeypatch, caplog):
    shop(rig)
    rig.push.join(group("other"))
    answer = rig.push._answer_calls
    monkeypatch.setattr(rig.push, "_answer_calls", lambda of, called: 1 / 0 if of == WEB else answer(of, called))
    for each in (WEB, group("other")):
        rig.push.call(each, ["hold|15001|10.96.0.1"])
    await asyncio.sleep(0)
    assert ORDERS in clusters(rig, group("other")) and ORDERS not in clusters(rig)
    assert "a push failed" in caplog.text


async def test_clusters_that_a_proxy_subscribes_to_are_calls_that_it_holds_or_hosts_that_it_had(rig):
    shop(rig)
    wanted = ["hold|15001|10.96.0.1", f"outbound|80||{CART}", "BlackHoleCluster"]
    rig.push.want(WEB, wanted, with_hosts=False, soon=False)
    assert clusters(rig) == {ORDERS, "10.96.0.1"}
    rig.push.want(WEB, wanted, with_hosts=True, soon=False)
    assert clusters(rig) == {ORDERS, CART, "10.96.0.1"}
    assert rig.push.calls.of(WEB).hosts[CART].why is CallReason.HAD


async def test_calls_of_a_group_have_no_effect_on_another_group(rig):
    shop(rig)
    rig.push.join(group("other"))
    rig.push.call(WEB, ["hold|15001|10.96.0.1"], soon=False)
    assert clusters(rig, group("other")) == set()


@pytest.mark.parametrize(
    "name", ["hold|", "hold|10.96.0.1", "hold|80|10.96.0.1", "hold|15001|nobody", "hold|15001|[::1]", "other"]
)
async def test_names_that_mean_no_address_are_no_calls(rig, name):
    shop(rig)
    rig.push.call(WEB, [name], soon=False)
    assert clusters(rig) == set()


async def test_destinations_of_routes_are_sent_with_the_call_and_follow_the_routes(rig):
    shop(rig)
    rig.push.call(WEB, ["hold|15001|10.96.0.1"], soon=False)
    rig.put(routes("orders", ORDERS, CART), routes("cart", CART, ORDERS))
    assert clusters(rig) == {ORDERS, CART, "10.96.0.1"}
    rig.put(routes("orders", ORDERS, ORDERS))
    assert clusters(rig) == {ORDERS, "10.96.0.1"}


async def test_a_host_defined_only_by_routes_is_shown_with_its_destinations(rig):
    shop(rig)
    rig.put(routes("elsewhere", "elsewhere.example", CART))
    assert clusters(rig) == {CART}


async def test_a_service_added_at_a_called_address_is_sent(rig):
    shop(rig)
    rig.push.call(WEB, ["hold|15001|10.96.0.9"], soon=False)
    assert clusters(rig) == {"10.96.0.9"}
    rig.put(service("late", addresses=("10.96.0.9",)))
    assert clusters(rig) == {"late.shop.svc.cluster.local", "10.96.0.9"}
    rig.put(service("late", addresses=("10.96.0.10",)))
    assert clusters(rig) == {"10.96.0.9"}


async def test_hosts_that_a_sidecar_names_are_sent_and_hidden_hosts_cannot_be_called(rig):
    shop(rig)
    rig.put(Sidecar("default", "shop", egress=(EgressListener((f"*/{ORDERS}",)),)))
    assert clusters(rig) == {ORDERS}
    rig.push.call(WEB, ["hold|15001|10.96.0.2"], soon=False)
    assert clusters(rig) == {ORDERS, "10.96.0.2"}
    rig.put(Sidecar("default", "shop", egress=(EgressListener(("*/*",)),)))
    assert clusters(rig) == {CART, "10.96.0.2"}, "a Sidecar that names nobody narrows nothing"


async def test_a_group_that_calls_too_many_addresses_gets_every_service():
    rig = Rig()
    rig.push._demand.calls = Calls(most=2)
    set_to(rig, ON)
    shop(rig)
    rig.push.join(group("other"))
    rig.put(service("outside", selector=None, external=True))  # this service makes the port shared
    for last in (1, 7, 8):
        assert held_by(rig) == {"virtualOutbound", "0.0.0.0_80"}
        rig.push.call(WEB, [f"hold|15001|10.96.0.{last}"], soon=False)
    assert clusters(rig) >= {ORDERS, CART, DB, "10.96.0.7", "10.96.0.8"}, "who waits goes on"
    assert held_by(rig) == set()
    for last in (10, 11):  # calls held by a proxy that did not have the service yet
        rig.push.call(WEB, [f"hold|15001|10.96.0.{last}"], soon=False)
    assert "10.96.0.10" in clusters(rig) and "10.96.0.11" not in clusters(rig), "what is not kept is not answered"
    assert "virtualOutboundAgain" in listener_names(rig), "connections that were held go that way"
    assert held_by(rig, group("other")) == {"virtualOutbound", "0.0.0.0_80"}
    rig.put(service("late", addresses=("10.96.0.9",)))
    assert LATE in clusters(rig) and LATE not in clusters(rig, group("other"))
    assert held_by(rig) == set()
    rig.push.close()


async def test_calls_of_a_group_are_kept_after_it_is_dropped(rig):
    shop(rig)
    rig.push.call(WEB, ["hold|15001|10.96.0.1"], soon=False)
    rig.push.leave(WEB)
    rig.push.call(WEB, (), [CART], CallReason.HAD)
    rig.push.join(WEB)
    assert clusters(rig) == {ORDERS, CART, "10.96.0.1"}


async def test_an_http_port_is_shared_only_if_a_service_has_no_address(rig):
    shop(rig)
    rig.push.call(WEB, ["hold|15001|10.96.0.1"], soon=False)
    assert "0.0.0.0_80" not in rig.snapshots.resources(WEB, LISTENER)
    rig.put(service("outside", selector=None, external=True))
    assert "0.0.0.0_80" in rig.snapshots.resources(WEB, LISTENER)
    rig.push.touch(rig.mesh.apply(ObjectKey("Service", "shop", "outside"), ()))
    rig.push.flush()
    assert "0.0.0.0_80" not in rig.snapshots.resources(WEB, LISTENER)
    rig.put(routes("elsewhere", "elsewhere.example", ORDERS))
    assert "0.0.0.0_80" in rig.snapshots.resources(WEB, LISTENER)


# Meshes with few services


@pytest.fixture
async def few():
    """A mesh that sends every service up to three services."""
    rig = Rig(Mesh(few=3))
    yield rig
    rig.push.close()


def drop(rig, name):
    rig.push.touch(rig.mesh.apply(ObjectKey("Service", "shop", name), ()))
    rig.push.flush()


async def test_few_services_are_sent_at_once_and_one_more_makes_new_groups_on_demand(few):
    shop(few)
    before = few.versions(WEB)
    assert clusters(few) == {ORDERS, CART, DB}
    assert (
        not held_by(few)
        and "virtualOutboundAgain" not in listener_names(few)
        and "10.96.0.1_80" not in listener_names(few)
    )
    few.put(LATER)
    few.push.join(group("other"))
    assert clusters(few, group("other")) == set() and held_by(few, group("other"))
    assert clusters(few) == {ORDERS, CART, DB}, "nothing is taken from who lives, and nothing comes by itself"
    assert before.keys() <= few.versions(WEB).keys(), "and no listener, for connections would end"
    assert held_by(few) == {"virtualOutbound", "0.0.0.0_80"}
    few.push.call(WEB, ["hold|15001|10.96.0.9"], soon=False)
    assert clusters(few) == {ORDERS, CART, DB, LATE, "10.96.0.9"}


async def test_one_service_less_sends_every_service_again_and_removes_no_listener(few):
    shop(few)
    few.put(LATER)
    other = group("other")
    few.push.join(other)
    few.push.call(other, ["hold|15001|10.96.0.1"], soon=False)
    before = {each: few.versions(each).keys() for each in (WEB, other)}
    drop(few, "db")
    assert clusters(few, other) == {ORDERS, CART, LATE, "10.96.0.1"}
    assert clusters(few) == {ORDERS, CART, LATE}
    for each, names_before in before.items():
        gone = names_before - few.versions(each).keys()
        assert all("db." in name or "_3306" in name for _, name in gone), gone
        assert held_by(few, each), "what was held has connections"
    few.push.join(group("new"))
    assert not held_by(few, group("new")) and clusters(few, group("new")) == {ORDERS, CART, LATE}


async def test_crossing_the_on_demand_threshold_repeatedly_removes_and_leaks_nothing(few):
    shop(few)
    few.put(LATER)
    drop(few, "late")
    down = few.versions(WEB)
    few.put(LATER)
    up = few.versions(WEB)
    for _ in range(3):
        drop(few, "late")
        assert few.versions(WEB) == down
        few.put(LATER)
        assert few.versions(WEB) == up
    assert len(few.push._viewpoints.all()) == 1


async def test_services_are_counted_per_scope(few):
    shop(few)
    few.put(service("own", "bank", addresses=("10.96.0.20",), export_to=(".",)))
    few.push.join(group("teller", "bank"))
    assert clusters(few) == {ORDERS, CART, DB} and clusters(few, group("teller", "bank")) == set()
    few.put(Sidecar("default", "bank", egress=(EgressListener((f"*/{ORDERS}",)),)))
    assert clusters(few, group("teller", "bank")) == {ORDERS}
    few.push.join(group("clerk", "bank"))
    assert clusters(few, group("clerk", "bank")) == {ORDERS} and not held_by(few, group("clerk", "bank"))


async def test_what_a_sidecar_names_and_what_has_no_address_does_not_count(few):
    shop(few)
    few.put(service("outside", selector=None, external=True))
    few.push.join(group("other"))
    assert not held_by(few, group("other"))
    few.put(LATER, Sidecar("default", "shop", egress=(EgressListener((f"*/{ORDERS}", "./*")),)))
    few.push.join(group("third"))
    assert not held_by(few, group("third")) and CART in clusters(few, group("third"))


async def test_enabling_on_demand_removes_nothing_from_existing_groups(rig):
    set_to(rig, Settings(on_demand=OnDemand.OFF))
    shop(rig)
    before = rig.versions(WEB)
    set_to(rig, ON)
    assert clusters(rig) == {ORDERS, CART, DB} and before.keys() <= rig.versions(WEB).keys()
    rig.put(LATER)
    assert LATE not in clusters(rig)
    before = rig.versions(WEB)
    set_to(rig, Settings(on_demand=OnDemand.OFF))
    assert LATE in clusters(rig) and before.keys() <= rig.versions(WEB).keys()
    set_to(rig, ON)
    rig.push.leave(WEB)
    rig.push.join(WEB)
    assert clusters(rig) == set(), "who comes anew has nothing"


@pytest.mark.parametrize("joined", [True, False])
async def test_a_reconnecting_proxy_loses_no_listener_though_its_on_demand_state_is_unknown(few, joined):
    """The control plane has just started. The proxy connects directly, or its agent reports what it has before the
    group joins."""
    shop(few)
    other = group("other")
    if joined:
        few.push.join(other)
    few.push.call(other, ["hold|15001|10.96.0.1"], [ORDERS], CallReason.HAD, soon=False)
    few.push.join(other)
    assert held_by(few, other) == {"virtualOutbound", "0.0.0.0_80"} and "10.96.0.1_80" in listener_names(few, other)
    assert clusters(few, other) == {ORDERS, CART, DB, "10.96.0.1"}, "it is on demand no more"
    few.put(LATER)
    third = group("third")
    if joined:
        few.push.join(third)
    few.push.want(third, [f"outbound|80||{ORDERS}", "0.0.0.0_80"], with_hosts=True, soon=False)
    few.push.join(third)
    assert clusters(few, third) == {ORDERS} and "0.0.0.0_80" in listener_names(few, third)
    few.push.join(group("fourth"))
    assert "0.0.0.0_80" not in listener_names(few, group("fourth"))
    few.push.call(group("fourth"), (), [ORDERS], CallReason.LOOKED_UP, soon=False)
    for held in ((), ["hold|15001|10.96.0.9"]):
        few.push.call(group("fourth"), held, [ORDERS], CallReason.HAD, soon=False)
    assert "0.0.0.0_80" not in listener_names(few, group("fourth")), "it has no more than it was told of here"


@pytest.mark.parametrize("joined", [True, False])
async def test_a_proxy_that_was_on_demand_and_not_keeps_both_kinds_of_listeners_at_another_replica(few, joined):
    shop(few)
    few.put(LATER)
    few.push.call(WEB, ["hold|15001|10.96.0.9"], soon=False)
    before = few.versions(WEB).keys()
    elsewhere = Rig(Mesh(few=3))
    shop(elsewhere)
    elsewhere.put(LATER, routes("late", LATE, CART))
    elsewhere.push.leave(WEB)
    if joined:
        elsewhere.push.join(WEB)
    clusters_of_web = (f"outbound|80||{host}" for host in (LATE, ORDERS, CART, DB))
    elsewhere.push.want(WEB, ["hold|15001|10.96.0.9", *clusters_of_web, "0.0.0.0_80"], with_hosts=True, soon=False)
    elsewhere.push.join(WEB)
    assert before <= elsewhere.versions(WEB).keys() and held_by(elsewhere) == {"virtualOutbound", "0.0.0.0_80"}
    other = group("other")
    if joined:
        elsewhere.push.join(other)
    elsewhere.push.call(other, ["hold|15001|10.96.0.9"], [LATE, CART], CallReason.HAD, soon=False)
    elsewhere.push.join(other)
    assert clusters(elsewhere, other) == {LATE, CART, "10.96.0.9"}
    assert "0.0.0.0_80" not in listener_names(elsewhere, other), "its call led to both"
    elsewhere.push.close()


@pytest.mark.parametrize("joined", [True, False])
async def test_a_reconnecting_proxy_keeps_the_listener_of_a_whole_port_that_another_replica_sent(rig, joined):
    shop(rig)
    other, calls = group("other"), ["hold|15001|10.96.0.1", f"outbound|80||{ORDERS}"]
    if joined:
        rig.push.join(other)
        rig.push.want(other, calls, with_hosts=True, soon=False)
        rig.push.want(other, ["10.96.0.1_80", "0.0.0.0_80"], with_hosts=True, soon=False)
    else:
        rig.push.want(other, [*calls, "0.0.0.0_80"], with_hosts=True, soon=False)
        rig.push.join(other)
    assert "0.0.0.0_80" in listener_names(rig, other)
    third = group("third")
    rig.push.join(third)
    rig.push.want(third, [*calls, "10.96.0.1_80"], with_hosts=True, soon=False)
    assert "0.0.0.0_80" not in listener_names(rig, third), "its proxies do not have the listener"


async def test_whether_a_group_will_be_on_demand_is_known_before_it_joins(few):
    shop(few)
    assert not few.push.is_on_demand(group("other"))
    few.put(LATER)
    assert few.push.is_on_demand(group("other")) and few.push.is_on_demand(WEB)


async def test_the_cost_depends_on_the_change_and_not_on_the_number_of_calls(rig, monkeypatch):
    rig.put(*(service(f"s{number}", addresses=(f"10.96.1.{number}",)) for number in range(50)))
    rig.push.join(WEB)
    rig.push.call(WEB, [f"hold|15001|10.96.1.{number}" for number in range(50)], soon=False)
    asked = []
    at, targets, answer = rig.mesh.services_at, Demand._targets, hold.answer
    monkeypatch.setattr(rig.mesh, "services_at", lambda *given: asked.append(given) or at(*given))
    monkeypatch.setattr(Demand, "_targets", lambda *given: asked.append(given[-1]) or targets(*given))
    monkeypatch.setattr(hold, "answer", lambda name: asked.append(name) or answer(name))
    rig.put(service("s1", addresses=("10.96.1.1",), target=9090))
    rig.put(service("another", addresses=("10.96.2.1",)))
    assert len(asked) <= 2
    asked.clear()
    rig.push.call(WEB, ["hold|15001|10.96.2.1"], soon=False)
    assert asked == [("10.96.2.1",), "another.shop.svc.cluster.local", *names_of("10.96.2.1")]


ADDRESSES = {"orders": ("10.96.0.1",), "cart": ("10.96.0.2", "fd00::2"), "late": ("10.97.0.1",)}
HELD = [f"hold|15001|{address}" for address in ("10.96.0.1", "10.96.0.2", "fd00::2", "10.96.0.9", "10.97.0.1")]
EVENTS = {
    **HISTORIES,
    "service": lambda chance: service(
        name := chance.choice(sorted(ADDRESSES)),
        port=chance.choice((80, 81)),
        addresses=chance.choice((ADDRESSES[name], ADDRESSES[name], ())),
    ),
    "settings": lambda chance: Settings(on_demand=chance.choice(tuple(OnDemand))),
    "sidecar": lambda chance: Sidecar(
        "default",
        "shop",
        egress=chance.choice(((), (EgressListener(("./*",)),), (EgressListener((f"*/{CART}",)),))),
        outbound_policy=chance.choice((None, *OutboundPolicy)),
    ),
}


@pytest.mark.parametrize("seed", range(40))
async def test_whatever_happened_a_group_has_the_config_of_a_new_group(seed):
    """It also keeps what it had before it changed to or from on demand, and its resources refer to no missing
    cluster."""
    chance = random.Random(seed)
    rig = Rig(Mesh(few=seed % 4))
    open_ranges(rig.mesh)
    groups = [group("a"), group("b"), group("a", "bank")]
    for _ in range(40):
        for _ in range(chance.choice((1, 1, 2, 3))):  # changes of one push
            value = EVENTS[chance.choice(sorted(EVENTS))](chance)
            name = ("istio-system", "istio") if isinstance(value, Settings) else (value.namespace, value.name)
            rig.push.touch(
                rig.mesh.apply(ObjectKey(type(value).__name__, *name), (value,) if chance.random() < 0.8 else ())
            )
        rig.push.flush()
        each = chance.choice(groups)
        (rig.push.join if chance.random() < 0.8 else rig.push.leave)(each)
        rig.push.call(chance.choice(groups), [chance.choice(HELD)], soon=False)
        afresh = Rig(rig.mesh)
        afresh.push._demand.calls = rig.push.calls
        for here in rig.push.groups():
            afresh.push.join(here)
            assert rig.versions(here) == afresh.versions(here)
            assert named_clusters(rig, here) <= rig.snapshots.resources(here, CLUSTER).keys()
        afresh.push.close()
    fresh, again = Rig(rig.mesh), Rig(replayed(rig.mesh, chance, few=seed % 4))
    for each in groups:
        fresh.push.join(each)
        again.push.join(each)
        assert fresh.versions(each) == again.versions(each), "who comes has it from the mesh as it is, not as it was"
    for each in groups:
        fresh.push.leave(each)
    for each in groups:
        rig.push.leave(each)
    demand = rig.push._demand
    assert not (rig.push._viewpoints.all() or demand._called or demand._roots or demand._fresh or demand._turn_of)
    assert not (demand._shown or rig.push._translated._by_view or any(rig.push._translated._viewers.values()))
    assert not rig.mesh._reach._hosts
    rig.push.close()


def open_ranges(mesh):
    """Add the address ranges of all services, which stay when a service is deleted."""
    key = ObjectKey("Service", "shop", "first")
    mesh.apply(key, (service("first", addresses=("10.96.0.99", "10.97.0.99", "fd00::99")),))
    mesh.apply(key, ())


def replayed(mesh, chance, few):
    """Return a mesh with the same objects, applied in another order."""
    values = list(mesh.values())
    chance.shuffle(values)
    again = Mesh(few=few)
    open_ranges(again)
    for key, each in values:
        again.apply(key, each)
    return again


def named_clusters(rig, of):
    """Return the clusters that the group's listeners and routes name and whose service exists."""
    bodies = [each.body for kind in (ROUTE, LISTENER) for each in rig.snapshots.resources(of, kind).values()]
    names = {name.decode() for body in bodies for name in re.findall(rb"outbound\|\d+\|\w*\|[a-z.]+", body)}
    scope = rig.mesh.scope(of)

    def is_there(name):
        _, port, _, host = name.split("|")
        found = rig.mesh.service(host, scope)
        return found is not None and any(each.number == int(port) for each in scope.ports(found))

    return set(filter(is_there, names))
