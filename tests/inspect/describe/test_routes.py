"""The rules and routes that lead to pods, in words."""

import re
from datetime import timedelta

import pytest

from model.builders import group, instance, put, service
from weft.cli.read.trial_source import staged
from weft.files.documents import read_documents
from weft.inspect.describe.pods_and_services import describe_service
from weft.inspect.describe.routes import labels, named, routings, rules
from weft.inspect.describe.text import service_lines
from weft.mesh.mesh import Mesh
from weft.model.destination_rule import (
    ClientTls,
    ClientTlsMode,
    ConnectionPool,
    ConsistentHash,
    DestinationRule,
    HashKey,
    LoadBalancer,
    LocalitySetting,
    OutlierDetection,
    ProxyProtocol,
    RetryBudget,
    SimpleBalancer,
    Subset,
    TrafficPolicy,
)
from weft.model.names import ObjectKey, Origin, labels_of
from weft.model.virtual_service import (
    Delegate,
    Destination,
    DirectResponse,
    HttpMatch,
    HttpRoute,
    L4Match,
    L4Route,
    MatchKind,
    Redirect,
    StringMatch,
    VirtualService,
    WeightedDestination,
)

HOST = "app.shop.svc.cluster.local"
APP = service("app")
POD = instance("app-v1", "app", labels={"version": "v1"})


def subset(name):
    return Subset(name, labels_of({"version": name}))


def to(name="", weight=0, host=HOST):
    return WeightedDestination(Destination(host, name), weight)


@pytest.fixture
def mesh():
    made = Mesh()
    put(made, APP, DestinationRule("app", "shop", HOST, subsets=(subset("v1"), subset("v2"))))
    return made


def routes(mesh, *http, hosts=(HOST,), **more):
    put(mesh, VirtualService("app", "shop", hosts, http=http, **more))
    return list(routings(mesh, APP, group("app"), [POD]))


def test_a_subset_lists_its_pods(mesh):
    (rule,) = rules(mesh, APP, group("app"), [POD])
    assert [(each.name, each.pods) for each in rule.subsets] == [("v1", ("app-v1",)), ("v2", ())]
    assert rule.in_force


def test_a_rule_is_not_in_force_if_another_takes_precedence(mesh):
    put(mesh, DestinationRule("all", "istio-system", "*.local"))
    assert [(each.where.object, each.in_force) for each in rules(mesh, APP, group("app"), [])] == [
        ("DestinationRule shop/app", True),
        ("DestinationRule istio-system/all", False),
    ]


def test_a_traffic_policy_is_described_by_its_settings(mesh):
    policy = TrafficPolicy(
        LoadBalancer(SimpleBalancer.RANDOM), ConnectionPool(), OutlierDetection(), ClientTls(ClientTlsMode.SIMPLE)
    )
    put(mesh, DestinationRule("app", "shop", HOST, policy))
    (rule,) = rules(mesh, APP, group("app"), [POD])
    assert rule.policy == ("TLS SIMPLE", "load balancer RANDOM", "pods that fail are ejected")


def test_a_route_reaches_a_pod_by_its_subset_and_its_share(mesh):
    (routing,) = routes(mesh, HttpRoute(route=(to("v1", 90), to("v2", 10))), HttpRoute(route=(to("v2"),)))
    first, second = routing.routes
    assert (first.number, first.reaches, second.reaches) == (1, True, False)
    assert first.goes == f"goes to {HOST} subset v1 (90 %), {HOST} subset v2 (10 %)"
    (routing,) = routes(mesh, HttpRoute(route=(to("v1", 0), to("v2", 10))), HttpRoute(route=(to("nobody"),)))
    assert [each.reaches for each in routing.routes] == [False, False]


def test_for_another_host_only_the_routes_to_the_service_are_listed(mesh):
    elsewhere, here = HttpRoute(route=(to(host="other"),)), HttpRoute(route=(to(),))
    (routing,) = routes(mesh, elsewhere, here, hosts=("www.example.com",))
    assert [each.number for each in routing.routes] == [2]
    assert routes(mesh, elsewhere, hosts=("www.example.com",)) == []


def test_a_virtual_service_of_a_gateway_is_not_in_force_for_sidecars(mesh):
    (routing,) = routes(mesh, HttpRoute(route=(to(),)), gateways=("shop/door",))
    assert (routing.in_force, routing.gateways) == (False, ("shop/door",))
    (routing,) = routes(mesh, HttpRoute(route=(to(),)))
    assert routing.in_force


@pytest.mark.parametrize(
    ("route", "goes"),
    [
        (HttpRoute(redirect=Redirect()), "is redirected (301)"),
        (HttpRoute(direct_response=DirectResponse(503)), "gets a direct response 503"),
        (HttpRoute(delegate=Delegate("more", "shop")), "is delegated to VirtualService shop/more"),
    ],
)
def test_redirects_direct_responses_and_delegates_are_described(mesh, route, goes):
    assert routes(mesh, route)[0].routes[0].goes == goes


def test_http_conditions_are_described_in_words(mesh):
    exact, prefix = StringMatch(MatchKind.EXACT, "GET"), StringMatch(MatchKind.PREFIX, "/old")
    there, fits = StringMatch(MatchKind.PRESENT), StringMatch(MatchKind.REGEX, "a.*")
    match = HttpMatch(
        uri=prefix,
        method=exact,
        headers=(("x", there),),
        without_headers=(("y", fits),),
        query_params=(("q", exact),),
        port=80,
        source_labels=labels_of({"app": "web"}),
        source_namespace="shop",
    )
    (routing,) = routes(mesh, HttpRoute(match=(match, HttpMatch(uri=fits)), route=(to(),)), HttpRoute(route=(to(),)))
    assert routing.routes[0].when == (
        "path starts with /old and method is GET and header x is present and not header y matches a.* and query q is GET"
        " and port 80 and callers with app=web and callers in shop or path matches a.*"
    )
    assert routing.routes[1].when == "always"


def test_tcp_and_tls_conditions_are_described_in_words(mesh):
    tls = (L4Route((L4Match(sni_hosts=("a.example",), destination_subnets=("10.0.0.0/8",), port=1),), (to(),)),)
    (routing,) = routes(mesh, tls=tls, tcp=(L4Route(route=(to(),)),))
    assert [(each.kind, each.when) for each in routing.routes] == [
        ("tls", "server name a.example and to 10.0.0.0/8 and port 1"),
        ("tcp", "always"),
    ]


def test_an_object_is_named_with_or_without_its_place():
    assert str(named(DestinationRule("a", "b", "c"))) == "DestinationRule b/a"
    origin = Origin(ObjectKey("DestinationRule", "b", "a"), file="x.yaml", line=3)
    assert str(named(DestinationRule("a", "b", "c", origin=origin), line=7)) == "x.yaml:7: DestinationRule b/a"
    assert labels({"a": "b", "c": "d"}) == "a=b,c=d"


def test_a_route_of_the_host_that_leads_elsewhere_does_not_reach_it(mesh):
    both, nobody = HttpRoute(route=(to(host="other", weight=1), to("nobody", 1))), HttpRoute(route=(to("nobody"),))
    (routing,) = routes(mesh, HttpRoute(route=(to(host="other"),)), both, nobody, HttpRoute(route=(to(),)))
    assert [(each.reaches, each.elsewhere) for each in routing.routes] == [
        (False, True), (False, False), (False, False), (True, False),
    ]  # fmt: skip


def test_a_route_to_a_missing_port_reaches_no_pod(mesh):
    lacking, served = (WeightedDestination(Destination(HOST, port=number)) for number in (8080, 80))
    (routing,) = routes(mesh, HttpRoute(route=(lacking,)), HttpRoute(route=(served,)))
    assert [(each.reaches, each.elsewhere) for each in routing.routes] == [(False, False), (True, False)]


def test_a_route_has_its_other_settings(mesh):
    (routing,) = routes(mesh, HttpRoute(route=(to(),), timeout=timedelta(seconds=3)))
    assert routing.routes[0].also == ("timeout 3 s",)


def test_load_balancing_is_described_by_hash_key_and_locality(mesh):
    near = LocalitySetting(failover=(("eu", "us"),))
    balancer = LoadBalancer(None, ConsistentHash(HashKey.HEADER, "x-user"), locality=near)
    policy = TrafficPolicy(balancer, retry_budget=RetryBudget(10, 1), proxy_protocol=ProxyProtocol.V2)
    put(mesh, DestinationRule("app", "shop", HOST, policy))
    (rule,) = rules(mesh, APP, group("app"), [POD])
    assert rule.policy == (
        "load balancer by hash of header x-user",
        "locality failover",
        "retries at most 10 % of active requests (always at least 1)",
        "PROXY header V2",
    )


STANDARD = """
apiVersion: v1
kind: Service
metadata: {name: app, namespace: shop}
spec: {selector: {app: app}, ports: [{name: http, port: 80}, {name: http-b, port: 81}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge, namespace: shop}
spec:
  gatewayClassName: weft
  listeners:
    - {name: a, port: 80, protocol: HTTP}
    - {name: b, port: 81, protocol: HTTP}
    - {name: bytes, port: 82, protocol: TCP}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: outside, namespace: shop}
spec:
  parentRefs: [{name: edge}]
  hostnames: [a.example, b.example]
  rules: [{backendRefs: [{name: app, port: 80}]}]
---
apiVersion: gateway.networking.k8s.io/v1alpha2
kind: TCPRoute
metadata: {name: bytes, namespace: shop}
spec:
  parentRefs: [{name: edge}]
  rules: [{backendRefs: [{name: nobody, port: 80}]}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: theirs, namespace: far}
spec:
  parentRefs: [{group: "", kind: Service, name: app, namespace: shop}]
  rules: [{backendRefs: [{name: app, namespace: shop, port: 80}]}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: more, namespace: far}
spec:
  parentRefs: [{group: "", kind: Service, name: app, namespace: shop, port: 81}]
  rules: [{backendRefs: [{name: app, namespace: shop, port: 80}]}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: BackendTLSPolicy
metadata: {name: app, namespace: shop}
spec:
  targetRefs: [{group: "", kind: Service, name: app}]
  validation: {hostname: app.example, wellKnownCACertificates: System}
"""


def test_gateway_api_routes_are_listed_once_with_the_callers_they_apply_to():
    stage, _ = staged(read_documents(STANDARD.encode(), "mesh.yaml").documents)
    lines = list(service_lines(describe_service(stage.mesh, (), "app", "shop")))
    told = [line for line in lines if re.match("   [A-Z][A-Za-z]+(Route|Policy|Rule): ", line)]
    assert told == [
        "   BackendTLSPolicy: shop/app (mesh.yaml:46) for app.shop.svc.cluster.local",
        "   HTTPRoute: far/more (mesh.yaml:39), in force only for callers in far",
        "   HTTPRoute: far/theirs (mesh.yaml:32), in force only for callers in far",
        "   HTTPRoute: shop/outside (mesh.yaml:17), not in force for sidecars of its namespace,"
        " at gateway shop/edge (listener a), shop/edge (listener b)",
    ]
