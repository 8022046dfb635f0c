"""Groups that are told of a service when they call it, whatever happens around them."""

import asyncio
import random
import re

import pytest

from control.test_push import CART, HISTORIES, ORDERS, Rig
from model.builders import group, service
from weft.model.calls import Calls, Why
from weft.model.names import ObjectKey
from weft.model.service import Protocol
from weft.model.settings import Settings
from weft.model.sidecar import EgressListener, OutboundPolicy, Sidecar
from weft.model.virtual_service import Destination, HttpRoute, VirtualService, WeightedDestination
from weft.xds.types import CLUSTER, LISTENER, ROUTE

WEB = group("web")
ON = Settings(on_demand=True)


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
    """Hosts, and what was held."""
    return {name.rpartition("|")[2] for name in rig.snapshots.resources(of, CLUSTER) if name.count("|") in (2, 3)} - {
        ""
    }


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


async def test_a_call_over_either_family_is_told_of_both(rig):
    shop(rig)
    rig.push.call(WEB, ["hold|15001|fd00::2"], soon=False)
    assert clusters(rig) == {CART, "fd00::2"}
    assert {"10.96.0.2_80", "fd00::2_80"} <= rig.snapshots.resources(WEB, LISTENER).keys()


async def test_calls_of_one_turn_are_one_push_and_what_is_known_is_none(rig):
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


async def test_another_group_knows_nothing_of_the_calls(rig):
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


async def test_where_routes_lead_goes_with_the_call_and_comes_and_goes_with_the_routes(rig):
    shop(rig)
    rig.push.call(WEB, ["hold|15001|10.96.0.1"], soon=False)
    rig.put(routes("orders", ORDERS, CART), routes("cart", CART, ORDERS))
    assert clusters(rig) == {ORDERS, CART, "10.96.0.1"}
    rig.put(routes("orders", ORDERS, ORDERS))
    assert clusters(rig) == {ORDERS, "10.96.0.1"}


async def test_a_host_that_only_routes_speak_for_is_told_of_with_whom_it_leads_to(rig):
    shop(rig)
    rig.put(routes("elsewhere", "elsewhere.example", CART))
    assert clusters(rig) == {CART}


async def test_a_service_that_comes_to_an_address_that_was_called_is_told_of(rig):
    shop(rig)
    rig.push.call(WEB, ["hold|15001|10.96.0.9"], soon=False)
    assert clusters(rig) == {"10.96.0.9"}
    rig.put(service("late", addresses=("10.96.0.9",)))
    assert clusters(rig) == {"late.shop.svc.cluster.local", "10.96.0.9"}
    rig.put(service("late", addresses=("10.96.0.10",)))
    assert clusters(rig) == {"10.96.0.9"}


async def test_what_a_sidecar_names_is_told_of_and_what_it_hides_cannot_be_called(rig):
    shop(rig)
    rig.put(Sidecar("default", "shop", egress=(EgressListener((f"*/{ORDERS}",)),)))
    assert clusters(rig) == {ORDERS}
    rig.push.call(WEB, ["hold|15001|10.96.0.2"], soon=False)
    assert clusters(rig) == {ORDERS, "10.96.0.2"}
    rig.put(Sidecar("default", "shop", egress=(EgressListener(("*/*",)),)))
    assert clusters(rig) == {CART, "10.96.0.2"}, "a Sidecar that names nobody narrows nothing"


async def test_who_calls_too_many_is_told_of_everything():
    rig = Rig()
    rig.push._demand.calls = Calls(most=2)
    set_to(rig, ON)
    shop(rig)
    for last in (1, 7, 8):
        rig.push.call(WEB, [f"hold|15001|10.96.0.{last}"], soon=False)
    assert clusters(rig) >= {ORDERS, CART, "db.shop.svc.cluster.local"}
    assert "10.96.0.8" not in clusters(rig), "what is not kept is not answered"
    rig.push.close()


async def test_what_a_group_has_called_outlives_it(rig):
    shop(rig)
    rig.push.call(WEB, ["hold|15001|10.96.0.1"], soon=False)
    rig.push.leave(WEB)
    rig.push.call(WEB, (), [CART], Why.HAD)
    rig.push.join(WEB)
    assert clusters(rig) == {ORDERS, CART, "10.96.0.1"}


async def test_an_http_port_is_shared_only_where_somebody_has_no_address(rig):
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


ADDRESSES = {"orders": ("10.96.0.1",), "cart": ("10.96.0.2", "fd00::2"), "late": ("10.97.0.1",)}
HELD = [f"hold|15001|{address}" for address in ("10.96.0.1", "10.96.0.2", "fd00::2", "10.96.0.9", "10.97.0.1")]
EVENTS = {
    **HISTORIES,
    "service": lambda chance: service(
        name := chance.choice(sorted(ADDRESSES)),
        port=chance.choice((80, 81)),
        addresses=chance.choice((ADDRESSES[name], ADDRESSES[name], ())),
    ),
    "settings": lambda chance: Settings(on_demand=chance.random() < 0.8),
    "sidecar": lambda chance: Sidecar(
        "default",
        "shop",
        egress=chance.choice(((), (EgressListener(("./*",)),), (EgressListener((f"*/{CART}",)),))),
        outbound_policy=chance.choice((None, *OutboundPolicy)),
    ),
}


@pytest.mark.parametrize("seed", range(40))
async def test_whatever_happened_a_group_has_what_one_that_comes_now_would_get(rig, seed):
    """And nothing of it leads to something that it lacks."""
    chance = random.Random(seed)
    groups = [group("a"), group("b"), group("a", "bank")]
    for _ in range(40):
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
    for each in groups:
        rig.push.leave(each)
    assert not (
        rig.push._places or rig.push._demand._seen or rig.push._translation._made or any(rig.push._watching.values())
    )


def named_clusters(rig, of):
    """Those that its listeners and routes name, and that there is somebody for."""
    bodies = [each.body for kind in (ROUTE, LISTENER) for each in rig.snapshots.resources(of, kind).values()]
    names = {name.decode() for body in bodies for name in re.findall(rb"outbound\|\d+\|\w*\|[a-z.]+", body)}
    scope = rig.mesh.scope(of)

    def is_there(name):
        _, port, _, host = name.split("|")
        found = rig.mesh.service(host, scope)
        return found is not None and any(each.number == int(port) for each in scope.ports(found))

    return set(filter(is_there, names))
