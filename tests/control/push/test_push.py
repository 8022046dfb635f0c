import asyncio
import random

import msgspec
import pytest
from envoy.config.endpoint.v3.endpoint_pb2 import ClusterLoadAssignment

from eventually import eventually
from model.builders import group, instance, put, service
from weft.control.problems import Problems
from weft.control.push import contribute, view
from weft.control.push.push import Push
from weft.control.push.schedule import PushTiming
from weft.mesh.mesh import Mesh
from weft.model.access_log import Reporter
from weft.model.authorization_policy import Action, AuthorizationPolicy, AuthorizationRule
from weft.model.destination_rule import (
    DestinationRule,
    LoadBalancer,
    LocalitySetting,
    OutlierDetection,
    Subset,
    TrafficPolicy,
)
from weft.model.extension_provider import Authorizer
from weft.model.gateway import Gateway, GatewayServer
from weft.model.group import Group, ProxyKind
from weft.model.names import ObjectKey, labels_of
from weft.model.peer_authentication import PeerAuthentication, TlsMode
from weft.model.service import Protocol, ServicePort
from weft.model.settings import Settings
from weft.model.sidecar import EgressListener, OutboundPolicy, Sidecar
from weft.model.telemetry import AccessLogging, Telemetry
from weft.model.virtual_service import Delegate, Destination, HttpMatch, HttpRoute, VirtualService, WeightedDestination
from weft.translate.service import contribute as translate
from weft.translate.view import service_view
from weft.xds.snapshot import Snapshots
from weft.xds.types import CLUSTER, ENDPOINT, LISTENER, ROUTE

ORDERS = "orders.shop.svc.cluster.local"
CART = "cart.shop.svc.cluster.local"
DB = "db.shop.svc.cluster.local"


class Rig:
    def __init__(self, mesh=None):
        self.mesh = mesh or Mesh()
        self.snapshots = Snapshots()
        self.problems = Problems()
        self.push = Push(self.mesh, self.snapshots, self.problems, PushTiming(0.0, 0.0, 0.0))

    def put(self, *values):
        """Apply and push; returns group → type → names that changed."""
        before = {g: self.versions(g) for g in self.push.groups()}
        for value in values:
            self.push.touch(put(self.mesh, value))
        self.push.flush()
        return {g: changed for g in before if (changed := self.difference(before[g], self.versions(g)))}

    def versions(self, group):
        types = (CLUSTER, ENDPOINT, LISTENER, ROUTE)
        return {(t, name): r.version for t in types for name, r in self.snapshots.resources(group, t).items()}

    @staticmethod
    def difference(before, after):
        return {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}


@pytest.fixture
async def rig():
    rig = Rig()
    yield rig
    rig.push.close()


async def test_a_group_whose_push_fails_does_not_affect_others(rig, monkeypatch, caplog):
    for name in ("bad", "web"):
        rig.push.join(group(name))
    translate = contribute.base

    def base(view):
        if any(each.name == "poison" for each in view.authorization):
            raise ValueError("poison")
        return translate(view)

    monkeypatch.setattr(contribute, "base", base)
    selected = AuthorizationPolicy("poison", "shop", selector=labels_of({"app": "bad"}))
    changed = rig.put(selected, AuthorizationPolicy("all", "shop", Action.DENY, rules=(AuthorizationRule(),)))
    assert changed == {group("web"): {(LISTENER, "virtualInbound")}}
    assert "proxies keep their config" in caplog.text


async def test_a_viewpoint_whose_push_fails_does_not_affect_others(rig, monkeypatch, caplog):
    for namespace in ("bad", "shop"):
        rig.push.join(group("web", namespace))
    translate = rig.push._view._from_viewpoint

    def from_viewpoint(look):
        if look.viewpoint.key.scope.namespace == "bad":
            raise ValueError("poison")
        return translate(look)

    monkeypatch.setattr(rig.push._view, "_from_viewpoint", from_viewpoint)
    changed = rig.put(service("orders"), AuthorizationPolicy("all", "bad", Action.DENY, rules=(AuthorizationRule(),)))
    assert (LISTENER, "virtualInbound") in changed[group("web", "bad")]
    assert (CLUSTER, f"outbound|80||{ORDERS}") in changed[group("web", "shop")]
    assert "proxies of namespace bad failed" in caplog.text


async def test_a_viewpoint_whose_view_fails_is_dropped(rig, monkeypatch):
    rig.put(service("orders"))
    look_from = rig.push._view._from_viewpoint
    monkeypatch.setattr(rig.push._view, "_from_viewpoint", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        rig.push.join(group("web"))
    monkeypatch.setattr(rig.push._view, "_from_viewpoint", look_from)
    assert not rig.push._viewpoints.all() and not rig.snapshots.groups() and not rig.push._join._compiled
    rig.push.join(group("api"))
    assert (CLUSTER, f"outbound|80||{ORDERS}") in rig.versions(group("api"))


async def test_a_group_whose_new_viewpoint_fails_stays_at_its_old_one(rig, monkeypatch, caplog):
    rig.put(service("orders"), service("cart"))
    for name in ("web", "api"):
        rig.push.join(group(name))
    before, viewpoint = rig.versions(group("web")), rig.push._viewpoints.of(group("web"))
    own = Sidecar("own", "shop", labels_of({"app": "web"}), egress=(EgressListener((f"./{CART}",)),))
    with monkeypatch.context() as patched:
        patched.setattr(rig.push._view, "_from_viewpoint", lambda _look: 1 / 0)
        assert rig.put(own) == {}
    assert rig.push._viewpoints.of(group("web")) is viewpoint and rig.push._viewpoints.all() == (viewpoint,)
    assert rig.versions(group("web")) == before and "its proxies keep their config" in caplog.text
    rig.put(msgspec.structs.replace(own, egress=(EgressListener((f"./{ORDERS}",)),)))
    assert f"outbound|80||{CART}" not in rig.snapshots.resources(group("web"), CLUSTER)


async def test_endpoints_follow_the_policies_of_another_root_namespace(rig):
    rig.put(service("orders"), instance("orders-0", "orders", meshed=True))
    rig.put(PeerAuthentication("default", "other", mode=TlsMode.DISABLE))
    rig.push.join(group("web"))
    endpoint, seen = (ENDPOINT, f"outbound|80||{ORDERS}"), []
    for root in ("istio-system", "other", "istio-system"):
        settings = Settings(root_namespace=root)
        rig.push.touch(rig.mesh.apply(ObjectKey("ConfigMap", "istio-system", "istio"), (settings,)))
        rig.push.flush()
        seen.append(rig.versions(group("web"))[endpoint])
    assert seen[0] == seen[2] != seen[1]


async def test_a_group_gets_everything_it_sees_when_its_first_proxy_joins(rig):
    rig.put(service("orders"), instance("orders-0", "orders"))
    rig.push.join(group("web"))
    names = {t: set(rig.snapshots.resources(group("web"), t)) for t in (CLUSTER, ENDPOINT, LISTENER, ROUTE)}
    assert f"outbound|80||{ORDERS}" in names[CLUSTER]
    assert names[ENDPOINT] == {f"outbound|80||{ORDERS}"}
    assert names[LISTENER] == {"virtualOutbound", "virtualInbound", "0.0.0.0_80"}
    assert names[ROUTE] == {"80"}


async def test_an_endpoint_changes_only_its_own_assignment(rig):
    rig.put(service("orders"), service("cart"), instance("orders-0", "orders", meshed=True))
    rig.push.join(group("web"))
    changed = rig.put(instance("orders-0", "orders", address="10.244.9.9", meshed=True))
    assert changed == {group("web"): {(ENDPOINT, f"outbound|80||{ORDERS}")}}


async def test_groups_that_do_not_see_a_host_are_left_alone(rig):
    rig.put(
        service("orders"),
        service("cart"),
        Sidecar("blind", "shop", labels_of({"app": "blind"}), (EgressListener((f"./{CART}",)),)),
        instance("orders-0", "orders", meshed=True),
    )
    rig.push.join(group("web"))
    rig.push.join(group("blind"))
    assert f"outbound|80||{ORDERS}" not in rig.snapshots.resources(group("blind"), CLUSTER)
    assert set(rig.put(instance("orders-0", "orders", address="10.244.9.9", meshed=True))) == {group("web")}
    assert set(rig.put(routes("orders", ORDERS))) == {group("web")}


def routes(name, host, to=None):
    destination = WeightedDestination(Destination(to or host))
    return VirtualService(name, "shop", (host,), http=(HttpRoute(route=(destination,), name="r"),))


async def test_a_route_changes_only_the_route_configuration_of_its_port(rig):
    rig.put(service("orders"), service("cart"), service("admin", port=8080))
    rig.push.join(group("web"))
    assert rig.put(routes("orders", ORDERS)) == {group("web"): {(ROUTE, "80")}}


async def test_equal_groups_share_the_same_bytes(rig):
    rig.put(service("orders"))
    rig.push.join(group("web"))
    rig.push.join(group("batch"))
    one, two = (rig.snapshots.resources(g, ROUTE)["80"] for g in (group("web"), group("batch")))
    assert one is two


async def test_groups_of_other_namespaces_share_what_does_not_depend_on_the_caller(rig):
    rig.put(service("orders"))
    for namespace in ("one", "two"):
        rig.push.join(group("web", namespace))
    one, two = (rig.snapshots.resources(group("web", namespace), ROUTE)["80"] for namespace in ("one", "two"))
    assert one is two


async def test_a_subset_brings_its_cluster_and_endpoints(rig):
    rig.put(service("orders"), instance("orders-0", "orders", labels={"version": "v1"}))
    rig.push.join(group("web"))
    rule = DestinationRule("orders", "shop", ORDERS, subsets=(Subset("v1", labels_of({"version": "v1"})),))
    changed = rig.put(rule)[group("web")]
    assert {(CLUSTER, f"outbound|80|v1|{ORDERS}"), (ENDPOINT, f"outbound|80|v1|{ORDERS}")} <= changed


async def test_routes_follow_the_service_they_send_to(rig):
    """A destination without a port means the service's only one; when that moves, the route must follow."""
    rig.put(service("orders"), service("cart", port=9090), routes("orders", ORDERS, to=CART))
    rig.push.join(group("web"))
    changed = rig.put(service("cart", port=9091))[group("web")]
    assert (ROUTE, "80") in changed


async def test_a_route_to_a_headless_service_adds_and_removes_the_cluster_of_its_pods(rig):
    rig.put(service("orders"), service("cart", headless=True), instance("cart-0", "cart"))
    rig.push.join(group("web"))
    before, pods = rig.versions(group("web")), (CLUSTER, f"outbound|80|~|{CART}")
    assert pods in rig.put(routes("orders", ORDERS, to=CART))[group("web")]
    assert pods in rig.put(instance("cart-1", "cart", address="10.244.0.2"))[group("web")]
    assert (ROUTE, "80") in rig.put(service("cart"))[group("web")] and pods not in rig.versions(group("web"))
    rig.put(service("cart", headless=True))
    for kind, name in (("VirtualService", "orders"), ("Instance", "cart-1")):
        rig.push.touch(rig.mesh.apply(ObjectKey(kind, "shop", name), ()))
    rig.push.flush()
    assert rig.versions(group("web")) == before


async def test_a_wildcard_rule_touches_every_host_it_covers(rig):
    rig.put(service("orders"), service("cart"))
    rig.push.join(group("web"))
    subset = Subset("v1", labels_of({"version": "v1"}))
    changed = rig.put(DestinationRule("all", "shop", "*.shop.svc.cluster.local", subsets=(subset,)))[group("web")]
    assert {(CLUSTER, f"outbound|80|v1|{ORDERS}"), (CLUSTER, f"outbound|80|v1|{CART}")} <= changed


async def test_a_deleted_service_takes_all_its_resources_along(rig):
    rig.put(service("orders"), instance("orders-0", "orders"))
    rig.push.join(group("web"))
    before = rig.versions(group("web"))
    rig.put(service("cart"))
    rig.push.touch(rig.mesh.apply(ObjectKey("Service", "shop", "cart"), ()))
    rig.push.flush()
    assert rig.versions(group("web")) == before


async def test_a_new_sidecar_changes_what_its_namespace_sees_and_no_other(rig):
    rig.put(service("orders"), service("cart"))
    rig.push.join(group("web"))
    rig.push.join(group("web", "other"))
    changed = rig.put(Sidecar("default", "shop", egress=(EgressListener((f"./{CART}",)),)))
    assert set(changed) == {group("web")}
    assert f"outbound|80||{ORDERS}" not in rig.snapshots.resources(group("web"), CLUSTER)


async def test_a_new_inbound_port_reaches_the_workloads_own_proxies(rig):
    rig.put(service("orders"), instance("orders-0", "orders"))
    rig.push.join(group("orders"))
    changed = rig.put(service("orders", target=9090))[group("orders")]
    assert {(LISTENER, "virtualInbound"), (CLUSTER, "inbound|8080||"), (CLUSTER, "inbound|9090||")} <= changed


async def test_the_last_proxy_of_a_group_takes_its_config_along(rig):
    rig.put(service("orders"))
    rig.push.join(group("web"))
    rig.push.leave(group("web"))
    assert rig.snapshots.groups() == []
    assert rig.put(service("cart")) == {}


async def test_endpoints_do_not_wait_for_the_quiet_that_other_changes_wait_for():
    rig = Rig()
    rig.put(service("orders"), instance("orders-0", "orders", meshed=True))
    rig.push.join(group("web"))
    rig.push._schedule._timing = PushTiming(endpoints=0.0, quiet=3600, most=3600)
    before = rig.versions(group("web"))
    rig.push.touch(put(rig.mesh, routes("orders", ORDERS)))
    rig.push.touch(put(rig.mesh, instance("orders-0", "orders", address="10.244.9.9", meshed=True)))
    await eventually(lambda: rig.versions(group("web")) != before, every=0)
    assert rig.difference(before, rig.versions(group("web"))) == {(ENDPOINT, f"outbound|80||{ORDERS}")}
    rig.push.close()


@pytest.mark.parametrize("timing", [PushTiming(0.001, 0.03, 0.1), PushTiming(0.03, 0.001, 0.1)])
async def test_after_waiting_for_a_push_all_earlier_changes_are_in_the_snapshots(timing):
    mesh, snapshots = Mesh(), Snapshots()
    push = Push(mesh, snapshots, Problems(), timing)
    put(mesh, service("orders"))
    push.join(group("web"))
    async with asyncio.timeout(30):
        await push.pushed()  # nothing is pending
        push.touch(put(mesh, instance("orders-0", "orders")))
        push.touch(put(mesh, service("cart")))
        before = snapshots.resources(group("web"), ENDPOINT)[f"outbound|80||{ORDERS}"].version
        waiting = asyncio.gather(push.pushed(), push.pushed())
        await waiting
        assert not push.pending
        assert snapshots.resources(group("web"), ENDPOINT)[f"outbound|80||{ORDERS}"].version != before
        assert f"outbound|80||{CART}" in snapshots.resources(group("web"), CLUSTER)
        push.touch(put(mesh, service("more")))
        waiting = asyncio.ensure_future(push.pushed())
        await asyncio.sleep(0)
        push.close()  # no waiter is left
        await waiting


async def test_what_is_translated_step_by_step_equals_what_is_translated_afresh(rig):
    steps = [
        service("orders"),
        instance("orders-0", "orders", meshed=True, labels={"version": "v1"}),
        routes("orders", ORDERS, to=CART),
        service("cart", port=9090),
        instance("cart-0", "cart", meshed=False),
        DestinationRule("orders", "shop", ORDERS, subsets=(Subset("v1", labels_of({"version": "v1"})),)),
        Sidecar("default", "shop", egress=(EgressListener(("./*",)),)),
        service("cart", port=80),
        instance("cart-0", "cart", meshed=True),
        routes("orders", ORDERS),
    ]
    rig.push.join(group("orders", version="v1"))
    fresh = Rig()
    for step in steps:
        rig.put(step)
        put(fresh.mesh, step)
    fresh.push.join(group("orders", version="v1"))
    assert rig.versions(group("orders", version="v1")) == fresh.versions(group("orders", version="v1"))


async def test_changes_that_never_pause_are_still_pushed(rig):
    rig.push._schedule._timing = PushTiming(quiet=3600, most=60)
    rig.push.touch(put(rig.mesh, service("orders")))
    assert rig.push._schedule._timer.when() <= asyncio.get_running_loop().time() + 60


async def test_a_policy_changes_the_inbound_listener_of_selected_workloads_and_nothing_else(rig):
    rig.put(service("orders"), service("cart"))
    rig.push.join(group("orders"))
    rig.push.join(group("cart"))
    changed = rig.put(AuthorizationPolicy("p", "shop", selector=labels_of({"app": "orders"})))
    assert changed == {group("orders"): {(LISTENER, "virtualInbound")}}


async def test_an_external_authorizer_is_visible_whatever_the_sidecar_shows(rig):
    checker = "checker.auth.svc.cluster.local"
    provider = Authorizer(name="checker", host=checker, port=9000, grpc=True)
    policy = AuthorizationPolicy(
        "p", "shop", Action.CUSTOM, labels_of({"app": "orders"}), (AuthorizationRule(),), "checker"
    )
    rig.put(
        service("orders"),
        service("cart"),
        Sidecar("default", "shop", egress=(EgressListener(("./*",)),)),
        service("checker", "auth", 9000, protocol=Protocol.GRPC, export_to=(".",)),
    )
    rig.mesh.apply(ObjectKey("ConfigMap", "istio-system", "istio"), (Settings(extension_providers=(provider,)),))
    rig.push.join(group("orders"))
    rig.push.join(group("cart"))
    changed = rig.put(policy)
    asked = f"outbound|9000||{checker}"
    assert (CLUSTER, asked) in changed[group("orders")] and (ENDPOINT, asked) in changed[group("orders")]
    assert group("cart") not in changed
    key = ObjectKey("Service", "auth", "checker")
    values = rig.mesh.get(key)
    rig.push.touch(rig.mesh.apply(key, ()))
    rig.push.flush()
    without = rig.versions(group("orders"))
    assert (CLUSTER, asked) not in without
    rig.push.touch(rig.mesh.apply(key, values))
    rig.push.flush()
    again = rig.versions(group("orders"))
    assert (CLUSTER, asked) in again
    assert again[(LISTENER, "virtualInbound")] != without[(LISTENER, "virtualInbound")]


def logged(name="logs", **more):
    return Telemetry(name, "shop", access_logging=(AccessLogging(providers=("envoy",), **more),))


async def test_a_telemetry_changes_listeners_of_those_it_is_for_and_nothing_else(rig):
    rig.put(service("orders"), service("orders", namespace="bank"), instance("orders-0", "orders"))
    for each in (group("web"), group("web", "bank")):
        rig.push.join(each)
    before = rig.versions(group("web"))
    listeners = {(LISTENER, name) for name in ("virtualInbound", "virtualOutbound", "0.0.0.0_80")}
    assert rig.put(logged()) == {group("web"): listeners}
    assert rig.put(logged(reporter=Reporter.SERVER)) == {group("web"): listeners - {(LISTENER, "virtualInbound")}}
    rig.push.touch(rig.mesh.apply(ObjectKey("Telemetry", "shop", "logs"), ()))
    rig.push.flush()
    assert rig.versions(group("web")) == before


async def test_groups_that_log_alike_share_all_work_and_old_settings_are_forgotten(rig, monkeypatch):
    asked = []
    monkeypatch.setattr(contribute, "contribute", lambda view, own: asked.append(view) or translate(view, own))
    rig.put(service("orders", protocol=Protocol.TCP, addresses=("10.96.0.1",)))
    groups = [group(name) for name in ("a", "b", "c")]
    for each in groups:
        rig.push.join(each)
    rig.put(logged(), Telemetry("c", "shop", labels_of({"app": "c"}), (AccessLogging(disabled=True),)))
    assert len(asked) == 2, "once without a log, as `c` still is, and once with one"
    own = [rig.snapshots.resources(each, LISTENER)["10.96.0.1_80"] for each in groups]
    assert own[0] is own[1]
    assert own[0].version != own[2].version
    rig.push.touch(rig.mesh.apply(ObjectKey("Telemetry", "shop", "c"), ()))
    rig.push.flush()
    assert len(rig.push._translated._by_view[ORDERS]) == 1
    assert len(asked) == 2


async def test_a_rule_for_some_workloads_alone_reaches_these_and_no_others(rig):
    """In any order of the groups, and of the rule and the proxies."""
    picky = DestinationRule(
        "picky", "shop", ORDERS, TrafficPolicy(), (Subset("v1"),), workload_selector=labels_of({"app": "b"})
    )
    rig.put(service("orders"))
    for name in ("a", "b"):
        rig.push.join(group(name))
    changed = rig.put(picky)
    assert set(changed) == {group("b")}
    for name in ("c", "d"):
        rig.push.join(group(name))
    subset = f"outbound|80|v1|{ORDERS}"
    having = [name for name in "abcd" if subset in rig.snapshots.resources(group(name), CLUSTER)]
    assert having == ["b"]


HISTORIES = {
    "service": lambda chance: service(chance.choice(("orders", "cart")), port=chance.choice((80, 81))),
    "stream": lambda chance: service(
        "db", protocol=Protocol.TCP, port=chance.choice((80, 3306)), addresses=chance.choice(((), ("10.96.0.9",)))
    ),
    "instance": lambda chance: instance("orders-0", "orders", meshed=True, ready=chance.random() < 0.5),
    "sidecar": lambda chance: Sidecar(
        chance.choice(("default", "a")),
        "shop",
        selector=chance.choice((None, labels_of({"app": "a"}))),
        egress=chance.choice(
            (
                (),
                (EgressListener(("./*",)),),
                (EgressListener((f"*/{CART}",)),),
                (EgressListener((f"*/{ORDERS}",), ServicePort(81)), EgressListener((f"*/{CART}",))),
            )
        ),
        outbound_policy=chance.choice((None, *OutboundPolicy)),
    ),
    "rule": lambda chance: DestinationRule(
        "picky",
        "shop",
        chance.choice((ORDERS, CART)),
        TrafficPolicy(),
        (Subset("v1"),),
        workload_selector=chance.choice(((), labels_of({"app": "b"}))),
    ),
    "routes": lambda chance: VirtualService(
        "routes",
        "shop",
        hosts=(chance.choice((ORDERS, CART, "elsewhere.example")),),
        http=(
            HttpRoute(
                match=chance.choice(((), (HttpMatch(source_labels=labels_of({"app": "b"})),))),
                route=(WeightedDestination(Destination(chance.choice((ORDERS, CART)))),),
            ),
        ),
    ),
    "root": lambda chance: VirtualService(
        "root", "shop", hosts=(CART,), http=(HttpRoute(delegate=Delegate("leaf", chance.choice(("shop", "bank")))),)
    ),
    "leaf": lambda chance: VirtualService(
        "leaf",
        chance.choice(("shop", "bank")),
        hosts=chance.choice(((), (), ("leaf.example",))),
        http=(HttpRoute(route=(WeightedDestination(Destination(chance.choice((ORDERS, DB)))),)),),
        export_to=chance.choice(((), (".",), ("shop",))),
    ),
    "telemetry": lambda chance: Telemetry(
        "logs", "shop", chance.choice(((), labels_of({"app": "a"}))), (AccessLogging(providers=("envoy",)),)
    ),
}


@pytest.mark.parametrize("seed", range(25))
async def test_whatever_happened_a_group_has_the_config_of_a_new_group(rig, seed):
    chance = random.Random(seed)
    groups = [group("a"), group("b"), group("c"), group("a", "bank")]
    for _ in range(30):
        kind = chance.choice(sorted(HISTORIES))
        value = HISTORIES[kind](chance)
        key = ObjectKey(type(value).__name__, value.namespace, value.name)
        rig.push.touch(rig.mesh.apply(key, (value,) if chance.random() < 0.7 else ()))
        rig.push.flush()
        each = chance.choice(groups)
        (rig.push.join if chance.random() < 0.7 else rig.push.leave)(each)
        afresh = Rig(rig.mesh)
        for here in rig.push.groups():
            afresh.push.join(here)
            assert rig.versions(here) == afresh.versions(here)
            kinds = (CLUSTER, ENDPOINT, LISTENER, ROUTE)
            assert all(
                rig.push.resource(here, kind, name).version == version
                for (kind, name), version in rig.versions(here).items()
                if kind in kinds
            )
        afresh.push.close()
    for each in groups:
        rig.push.leave(each)
    assert not (
        rig.push._viewpoints.all()
        or rig.push.groups()
        or rig.push._translated._by_view
        or rig.push._translated._readers
        or any(rig.push._translated._viewers.values())
        or rig.push._translated._hosts
        or rig.push._join._compiled
        or rig.push._record._layers
    )
    assert not rig.snapshots._upon


def _ranks(rig, group):
    assignment = ClusterLoadAssignment.FromString(
        rig.snapshots.resources(group, ENDPOINT)[f"outbound|80||{ORDERS}"].body
    )
    return {each.locality.region: each.priority for each in assignment.endpoints}


async def test_the_locality_of_a_group_matters_only_if_a_rule_uses_it(rig):
    here, there = (msgspec.structs.replace(group("web"), locality=region) for region in ("eu", "us"))
    rig.put(
        service("orders"),
        instance("orders-0", "orders", locality="eu"),
        instance("orders-1", "orders", address="10.244.0.2", locality="us"),
    )
    rig.push.join(here)
    rig.push.join(there)
    assert len(rig.push._viewpoints.all()) == 1
    ejecting = DestinationRule("orders", "shop", ORDERS, TrafficPolicy(outlier_detection=OutlierDetection()))
    rig.put(ejecting)
    assert len(rig.push._viewpoints.all()) == 2
    assert (_ranks(rig, here), _ranks(rig, there)) == ({"eu": 0, "us": 1}, {"eu": 1, "us": 0})
    changed = rig.put(instance("orders-0", "orders", locality="eu", ready=False))
    assert changed.keys() == {here, there}
    assert (_ranks(rig, here), _ranks(rig, there)) == ({"us": 0}, {"us": 0})
    rig.push.touch(rig.mesh.apply(ObjectKey("DestinationRule", "shop", "orders"), ()))
    rig.push.flush()
    assert len(rig.push._viewpoints.all()) == 1
    assert _ranks(rig, here) == {"us": 0}


async def test_labels_of_callers_count_where_a_priority_names_them(rig):
    gold, silver = group("web", tier="gold"), group("web", tier="silver")
    rig.put(
        service("orders"),
        instance("orders-0", "orders", labels={"tier": "gold"}),
        instance("orders-1", "orders", address="10.244.0.2", labels={"tier": "silver"}),
    )
    near = LoadBalancer(locality=LocalitySetting(failover_priority=("tier",)))
    rig.put(DestinationRule("orders", "shop", ORDERS, TrafficPolicy(near, outlier_detection=OutlierDetection())))
    for each in (gold, silver):
        rig.push.join(each)
    first = []
    for each in (gold, silver):
        body = rig.snapshots.resources(each, ENDPOINT)[f"outbound|80||{ORDERS}"].body
        (nearest,) = (place for place in ClusterLoadAssignment.FromString(body).endpoints if not place.priority)
        first.append(nearest.lb_endpoints[0].endpoint.address.socket_address.address)
    assert first == ["10.244.0.1", "10.244.0.2"]


EDGE = Group(ProxyKind.GATEWAY, "edge", labels_of({"istio": "ingress"}))


def at_gateway(name, *hosts, to="orders", **more):
    route = HttpRoute(route=(WeightedDestination(Destination(f"{to}.shop.svc.cluster.local")),))
    return VirtualService(name, "shop", hosts, ("edge/public",), http=(route,), **more)


def public(*hosts, port=80):
    return Gateway("public", "edge", (GatewayServer(ServicePort(port, "http", Protocol.HTTP), hosts),))


async def test_a_gateway_sees_what_its_routes_name_and_follows_them(rig):
    rig.put(service("orders"), service("cart"), public("*"), at_gateway("a", "*.a.com"))
    rig.push.join(EDGE)

    def clusters():
        return {name for name in rig.snapshots.resources(EDGE, CLUSTER) if name.startswith("outbound")}

    assert clusters() == {f"outbound|80||{ORDERS}"}
    rig.put(at_gateway("a", "*.a.com", to="cart"))
    assert clusters() == {f"outbound|80||{CART}"}
    rig.put(at_gateway("b", "b.com"))
    assert clusters() == {f"outbound|80||{CART}", f"outbound|80||{ORDERS}"}
    assert rig.put(service("payments")) == {}
    assert rig.put(public("c.com"))[EDGE] >= {(CLUSTER, f"outbound|80||{CART}"), (ROUTE, "http.80")}
    assert clusters() == set()
    changed = rig.put(public("*", port=81))[EDGE]
    assert {(LISTENER, "0.0.0.0_80"), (LISTENER, "0.0.0.0_81"), (ROUTE, "http.80"), (ROUTE, "http.81")} <= changed


async def test_a_route_for_gateways_alone_is_nothing_to_sidecars(rig, monkeypatch):
    rig.put(service("orders"), service("cart"), public("*"))
    for each in (EDGE, group("web")):
        rig.push.join(each)
    looked = []
    monkeypatch.setattr(
        view, "service_view", lambda *given, **more: looked.append(given[3]) or service_view(*given, **more)
    )
    changed = rig.put(at_gateway("a", "*"))
    assert looked == ["*", ORDERS] or looked == [ORDERS, "*"]
    assert changed.keys() == {EDGE}


async def test_the_order_of_changes_does_not_matter_at_a_gateway():
    values = [
        service("orders"),
        service("cart"),
        public("*"),
        at_gateway("a", "*"),
        at_gateway("b", "b.com", to="cart"),
    ]
    values.append(AuthorizationPolicy("deny", "edge", Action.DENY, rules=(AuthorizationRule(),)))
    seen = []
    for seed in range(4):
        random.Random(seed).shuffle(values)
        rig = Rig()
        rig.push.join(EDGE)
        for value in values:
            rig.put(value)
        seen.append(rig.versions(EDGE))
        rig.push.close()
    assert all(each == seen[0] for each in seen)
