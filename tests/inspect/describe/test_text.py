"""Tests of a description as text."""

import pytest
from tests.inspect.test_stage import shop

from model.builders import instance, put, service
from weft.base.problem import Problem, Where
from weft.inspect.describe.pods_and_services import describe_pod, describe_service
from weft.inspect.describe.routes import RouteFacts, Routing
from weft.inspect.describe.text import _routing_lines, pod_lines, service_lines
from weft.inspect.stage import Stage
from weft.mesh.calls import Calls
from weft.mesh.mesh import Mesh
from weft.model.authorization_policy import AuthorizationPolicy, AuthorizationRule
from weft.model.destination_rule import DestinationRule, Subset
from weft.model.names import ObjectKey, Origin, labels_of
from weft.model.on_demand import OnDemand, Telling, overflowing
from weft.model.peer_authentication import PeerAuthentication, TlsMode
from weft.model.service import Protocol
from weft.model.settings import Settings
from weft.model.sidecar import EgressListener, Sidecar
from weft.model.virtual_service import Destination, HttpRoute, VirtualService, WeightedDestination

HOST = "app.shop.svc.cluster.local"
ON = Telling(every=False, held=True, ranges=("10.96.0.0/16",))


def made():
    mesh = Mesh()
    subsets = tuple(Subset(name, labels_of({"version": name})) for name in ("v1", "v2"))
    origin = Origin(ObjectKey("PeerAuthentication", "shop", "door"), file="door.yaml", line=7)
    put(
        mesh,
        service("app"),
        DestinationRule("app", "shop", HOST, subsets=subsets),
        VirtualService(
            "app", "shop", (HOST,), http=(HttpRoute("all", route=(WeightedDestination(Destination(HOST)),)),)
        ),
        PeerAuthentication("door", "shop", mode=TlsMode.STRICT, origin=origin),
        AuthorizationPolicy("guard", "shop", rules=(AuthorizationRule(),)),
    )
    for pod in (
        instance("app-0", "app", labels={"version": "v1"}, meshed=True, workload="app", excluded_ports=(9999,)),
        instance("bare-0", "bare", ready=False, address="10.0.0.2"),
    ):
        mesh.apply(ObjectKey("Pod", "shop", pod.name), (pod,))
    return mesh


def told(word, *problems):
    mesh = made()
    return list(pod_lines(describe_pod(mesh, Stage(mesh), problems, word)))


def test_a_pods_text_goes_from_identity_to_policies():
    assert told("app-0", Problem(Where(object="Service shop/app"), "a typo")) == [
        "Pod: app-0.shop",
        "   Workload: app",
        "   Labels: app=app,version=v1",
        "   Addresses: 10.244.0.1",
        "   Proxy: yes, it was injected when the pod was created",
        "   Identity: spiffe://cluster.local/ns/shop/sa/default",
        "--------------------",
        "Service: shop/app",
        "   Host: app.shop.svc.cluster.local",
        "   Port: http 80/HTTP targets pod port 8080",
        "   DestinationRule: shop/app for app.shop.svc.cluster.local",
        "      Subsets that this pod is in: v1 (version=v1)",
        "      Subsets that this pod is not in: v2 (version=v2)",
        "      Traffic policy: none",
        "   VirtualService: shop/app",
        "      http route 1 all: always: goes to app.shop.svc.cluster.local; reaches this pod",
        "--------------------",
        "Mutual TLS:",
        "   Port 8080: STRICT, only mutual TLS is accepted; PeerAuthentication shop/door (door.yaml:7)",
        "   Other ports: STRICT, only mutual TLS is accepted; PeerAuthentication shop/door (door.yaml:7)",
        "AuthorizationPolicies:",
        "   AuthorizationPolicy shop/guard: ALLOW, 1 rule",
        "RequestAuthentications: none, so no token is checked",
        "Sidecar: none, so it sees every exported service",
        "--------------------",
        "Problems:",
        "   Service shop/app: error: a typo",
    ]


def test_a_pods_text_states_a_missing_proxy_and_missing_services():
    assert told("bare-0") == [
        "Pod: bare-0.shop (not ready)",
        "   Labels: app=bare",
        "   Addresses: 10.0.0.2",
        "   Proxy: none, it was not injected when the pod was created; weft x check-inject shows why",
        "   Identity: none; the pod is called in plaintext, and no policy guards it",
        "--------------------",
        "Services: none selects it, so it cannot be called by a service name",
        "--------------------",
        "Problems:",
        "   warning: bare-0.shop is not ready: it gets no requests (hint: find out why: weft ps, weft logs bare-0)",
    ]


def test_a_services_text_lists_its_pods():
    lines = list(service_lines(describe_service(made(), (), "app")))
    assert "      Subsets that some pod is in: v1 (version=v1)" in lines
    assert "      Subsets that no pod is in: v2 (version=v2)" in lines
    assert lines[-3:] == [
        "Pods:",
        "   app-0.shop: ready, with a proxy, subset v1",
        "      Port 8080: STRICT, only mutual TLS is accepted; PeerAuthentication shop/door (door.yaml:7)",
    ]


def test_a_udp_port_states_only_that_it_bypasses_the_proxies():
    mesh = made()
    put(mesh, service("dns", port=53, target=5353, protocol=Protocol.UDP, selector=labels_of({"app": "app"})))
    lines = list(service_lines(describe_service(mesh, (), "dns")))
    past = "UDP bypasses the proxies: no routes, policies or TLS"
    assert f"   Port: udp 53/UDP targets pod port 5353; {past}" in lines
    assert lines[-1] == "   app-0.shop: ready, with a proxy", "and not what a PeerAuthentication says"


def test_a_services_text_states_missing_pods():
    mesh = Mesh()
    put(mesh, service("app"))
    lines = list(service_lines(describe_service(mesh, (), "app")))
    assert lines[-1] == "Pods: none, so calls fail"
    assert "   VirtualServices: none, so calls go to any of its pods" in lines


@pytest.mark.parametrize(
    ("elsewhere", "whom", "told"),
    [
        (True, "this pod", "not to this service"),
        (True, "some pod", "not to this service"),
        (False, "this pod", "does not reach it"),
        (False, "some pod", "does not reach any pod"),
    ],
)
def test_a_route_to_another_service_is_marked(elsewhere, whom, told):
    where = Where(object="VirtualService shop/web")
    route = RouteFacts(1, "http", "", where, "always", "goes to web", reaches=False, elsewhere=elsewhere)
    lines = list(_routing_lines(Routing(where, ("web",), (), in_force=True, routes=(route,)), whom))
    assert lines[-1].strip() == f"http route 1: always: goes to web; {told}"


def test_a_routes_text_has_its_settings():
    where = Where(object="VirtualService shop/web")
    route = RouteFacts(1, "http", "", where, "always", "goes to web", reaches=True, also=("timeout 3 s", "no retries"))
    lines = list(_routing_lines(Routing(where, ("web",), (), in_force=True, routes=(route,)), "this pod"))
    assert lines[-1].strip() == "Settings: timeout 3 s, no retries"


@pytest.mark.parametrize(
    "few, setting, telling, said",
    [
        (
            0,
            OnDemand.AUTO,
            None,
            "the proxy has 0 of 1 services, and gets each of the others at its first call (1 service could",
        ),
        (5, OnDemand.AUTO, None, ""),
        (0, OnDemand.OFF, None, "no, the proxy is sent the one service that it sees (weft.dev/on-demand: false)"),
        (5, OnDemand.OFF, None, ""),
        (
            5,
            OnDemand.AUTO,
            ON,
            "no longer, the proxy is sent the one service that it sees (1 service could be sent on demand, not more than 5",
        ),
        (
            0,
            OnDemand.ON,
            Telling(every=False, held=True, ranges=ON.ranges, kept=frozenset({"payments.shop.svc.cluster.local"})),
            "the proxy has the one service that it sees, and gets a new one at its first call; "
            "the proxy got 1 of them before it was on demand, and keeps them until it is restarted (weft.dev/on-demand: true)",
        ),
        (
            0,
            OnDemand.AUTO,
            overflowing(ON),
            "no longer, the proxy is sent every service because the pod has called more than 5,000 addresses",
        ),
    ],
)
def test_a_pods_text_states_on_demand_and_its_reason(few, setting, telling, said):
    mesh = shop(few=few)
    mesh.apply(ObjectKey("ConfigMap", "istio-system", "istio"), (Settings(on_demand=setting),))
    calls = Calls(most=1)
    stage = Stage(mesh, calls=calls)
    if telling is not None:
        group = stage.group(stage.find("orders"))
        calls.tell(group, telling)
        calls.add(group, hosts=["one", "another"] if telling.too_many else [])
        stage = Stage(mesh, calls=calls)
    told = [line for line in pod_lines(describe_pod(mesh, stage, (), "orders")) if line.startswith("On demand")]
    assert [line.startswith(f"On demand: {said}") for line in told] == ([True] if said else [])


def test_a_pods_text_states_that_its_sidecar_shows_no_service():
    mesh = shop(Sidecar("narrow", "shop", egress=(EgressListener(("./nobody.shop.svc.cluster.local",)),)))
    mesh.apply(ObjectKey("ConfigMap", "istio-system", "istio"), (Settings(on_demand=OnDemand.ON),))
    lines = pod_lines(describe_pod(mesh, Stage(mesh, calls=Calls()), (), "orders"))
    assert "On demand: there is no service that its Sidecar shows (weft.dev/on-demand: true)" in lines


def test_a_pods_text_counts_the_services_that_its_sidecar_shows():
    named = EgressListener(("./payments.shop.svc.cluster.local",))
    mesh = shop(service("web", addresses=("10.96.0.8",)), Sidecar("narrow", "shop", egress=(named,)), few=1)
    calls = Calls()
    stage = Stage(mesh, calls=calls)
    calls.tell(stage.group(stage.find("orders")), ON)
    stage = Stage(mesh, calls=calls)
    (told,) = [line for line in pod_lines(describe_pod(mesh, stage, (), "orders")) if line.startswith("On demand")]
    assert told == (
        "On demand: no longer, the proxy is sent the one service that its Sidecar shows "
        "(no service could be sent on demand, not more than 1; weft.dev/on-demand: auto)"
    )
