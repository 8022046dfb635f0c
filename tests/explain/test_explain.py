import msgspec
import pytest

from explain.worlds import LEGACY, ORDERS, SmallWorld, policy, virtual_service
from weft.explain.decision import Kind, ObjectSource
from weft.explain.explain import explain
from weft.explain.request import Request, Speaks
from weft.explain.text import lines
from weft.explain.world import NoPort, Unseen


def _ask(*texts, caller="frontend", host="orders", **request):
    return explain(Request(host=host, caller=caller, **request), SmallWorld(ORDERS, LEGACY, *texts))


def test_steps_go_from_the_name_to_the_workload():
    explained = _ask()
    assert explained.certain and explained.verdict.kind is Kind.DELIVERED and explained.verdict.workload == "orders"
    stages = [step.stage for step in explained.outcomes[0].steps]
    in_order = ["name", "listener", "route", "endpoint", "tls", "inbound", "tls", "route", "cluster", "workload"]
    assert [str(stage) for stage in dict.fromkeys(stages)] == list(dict.fromkeys(in_order))
    said = list(lines(explained))
    assert said[0] == "frontend: name: orders resolves to 10.96.0.1" and said[-1].startswith(
        "→ delivered: the call reaches orders"
    )


def test_an_unknown_name_fails():
    verdict = _ask(host="nobody").verdict
    assert (verdict.kind, verdict.why) == (Kind.FAILED, "nobody does not resolve")


@pytest.mark.parametrize(("host", "address"), [("LocalHost", ""), ("127.0.0.1", "127.0.0.1"), ("::1", "::1")])
def test_a_call_to_loopback_stays_in_the_pod(host, address):
    world = SmallWorld(bypassed={("frontend", 15000)})  # an application may call any port on loopback
    (outcome,) = explain(Request(host=host, port=15000, caller="frontend", address=address), world).outcomes
    assert (outcome.verdict.kind, outcome.verdict.why) == (Kind.PASSED_ON, "the call stays in frontend")
    assert outcome.steps[-1].what == f"{address or '127.0.0.1'} is frontend itself: no proxy handles the call"


def test_a_caller_without_a_proxy_connects_directly():
    world = SmallWorld(ORDERS, LEGACY)
    address = world.workload("orders").addresses[0]
    verdict = explain(Request(host="orders", caller="legacy", address=address, port=8080), world).verdict
    assert verdict.kind is Kind.DELIVERED and verdict.cluster == "inbound|8080||" and verdict.route == "default"
    assert explain(Request(host="x", caller="unheard-of", address="192.0.2.1"), world).verdict.kind is Kind.PASSED_ON


def test_a_caller_without_a_proxy_reaches_the_endpoint_that_the_network_chooses():
    world = SmallWorld(ORDERS, LEGACY)
    asked = Request(host="orders", caller="legacy")
    world.sent["10.96.0.1", 80] = ((world.workload("orders").addresses[0], 8080),)
    found = explain(asked, world)
    assert (found.verdict.kind, found.verdict.cluster) == (Kind.DELIVERED, "inbound|8080||")
    assert "10.96.0.1:80 is a service address, which the network itself forwards to " in str(found)
    strict = SmallWorld(ORDERS, LEGACY, policy("PeerAuthentication", "{mtls: {mode: STRICT}}", "default"))
    strict.sent = world.sent
    assert explain(asked, strict).verdict.kind is Kind.CLOSED
    world.sent["10.96.0.1", 80] = ()
    refused = explain(asked, world).verdict
    assert (refused.kind, refused.why) == (Kind.CLOSED, "the connection is refused")


def test_a_call_to_a_hidden_service_bypasses_the_mesh_with_a_step():
    world = SmallWorld(ORDERS, policy("Sidecar", '{egress: [{hosts: ["~/*"]}]}', "default", "networking.istio.io"))
    asked = Request(host="orders", caller="frontend")
    source = ObjectSource("Sidecar", "shop", "default")
    world.hidden["10.96.0.1", 80] = Unseen("10.96.0.1:80 is orders', which is hidden", (source,))
    world.sent["10.96.0.1", 80] = ((world.workload("orders").addresses[0], 8080),)
    found = explain(asked, world)
    assert (found.verdict.kind, found.verdict.cluster) == (Kind.DELIVERED, "PassthroughCluster")
    (told,) = [step for step in found.outcomes[0].steps if "hidden" in step.what]
    assert told.sources == (source,)
    assert "unknown to the mesh" not in str(found)
    world.sent["10.96.0.1", 80] = ()
    failed = explain(asked, world).verdict
    assert (failed.kind, failed.flags, failed.why) == (Kind.CLOSED, "UF", "the service has no endpoints")


def test_unknown_destinations_are_passed_on_or_blocked():
    assert _ask(host="web", address="192.0.2.1").verdict.cluster == "PassthroughCluster"
    only = policy("Sidecar", "{outboundTrafficPolicy: {mode: REGISTRY_ONLY}}", "default", "networking.istio.io")
    blocked = _ask(only, host="web", address="192.0.2.1").verdict
    assert (blocked.kind, blocked.status) == (Kind.ANSWERED, 502)
    assert blocked.why == (
        "no service visible to the caller has the host web, and the caller's outbound policy REGISTRY_ONLY allows no "
        "other hosts"
    )
    assert _ask(only, host="web", address="192.0.2.1", port=5432).verdict.kind is Kind.CLOSED


@pytest.mark.parametrize("caller", ["frontend", "legacy"])
def test_a_call_to_a_missing_port_of_a_service_fails(caller):
    world = SmallWorld(ORDERS, LEGACY)
    source = ObjectSource("Service", "shop", "orders")
    world.lacking["10.96.0.1", 81] = NoPort("orders has no port 81 (it has 80)", (source,))
    found = explain(Request(host="orders", caller=caller, port=81), world)
    assert (found.verdict.kind, found.verdict.why) == (Kind.FAILED, "orders has no port 81 (it has 80)")
    assert found.outcomes[0].steps[-1].sources == (source,)


def test_tcp_connections_are_routed_by_weight():
    tcp = """
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: orders, namespace: shop}
spec:
  hosts: [orders]
  tcp:
    - match: [{port: 7000}]
      route:
        - {destination: {host: orders, port: {number: 7000}}, weight: 75}
        - {destination: {host: nobody, port: {number: 7000}}, weight: 25}
"""
    outcomes = _ask(tcp, port=7000, speaks=Speaks.BYTES).outcomes
    assert [(each.odds, each.verdict.kind) for each in outcomes] == [(0.75, Kind.DELIVERED), (0.25, Kind.CLOSED)]


def test_the_protocol_of_an_undeclared_port_is_detected():
    http = _ask(port=9000).outcomes[0]
    assert http.verdict.path == "/" and any("ALPN istio-http/1.0" in step.what for step in http.steps)
    other = _ask(port=9000, speaks=Speaks.BYTES).outcomes[0]
    assert any("ALPN istio, SNI " in step.what for step in other.steps)
    assert other.verdict.kind is Kind.DELIVERED


def test_a_server_with_the_wrong_identity_is_not_called():
    world = SmallWorld(ORDERS)
    server = world.workload("orders")
    world.addresses[server.addresses[0]] = msgspec.structs.replace(
        server, identity="spiffe://cluster.local/ns/shop/sa/x"
    )
    verdict = explain(Request(host="orders", caller="frontend"), world).verdict
    assert (verdict.kind, verdict.status, verdict.flags) == (Kind.FAILED, 503, "URX,UF")
    assert (
        explain(Request(host="orders", caller="frontend", port=7000, speaks=Speaks.BYTES), world).verdict.kind
        is Kind.CLOSED
    )


@pytest.mark.parametrize(
    ("host", "kind"), [("orders", Kind.UNKNOWN), ("legacy", Kind.DELIVERED), ("outside.example", Kind.PASSED_ON)]
)
def test_a_proxy_header_is_a_step_and_makes_the_outcome_unknown_at_a_mesh_proxy(host, kind):
    behind_legacy = ORDERS.partition("---")[0].replace("orders", "legacy").replace("96.0.1", "96.0.2")
    outside = policy("ServiceEntry", "{hosts: [outside.example], addresses: [192.0.2.9], resolution: STATIC, "
                     "endpoints: [{address: 192.0.2.9}], ports: [{number: 80, name: http}]}", "outside", "networking.istio.io")  # fmt: skip
    announcing = f"{{host: {host}, trafficPolicy: {{proxyProtocol: {{version: V2}}}}}}"
    rule = policy("DestinationRule", announcing, group="networking.istio.io")
    world = SmallWorld("\n---\n".join((ORDERS, LEGACY, behind_legacy)), outside, rule)
    (outcome,) = explain(Request(host=host, caller="frontend"), world).outcomes
    assert outcome.verdict.kind is kind
    assert any("PROXY header" in each.what for each in outcome.steps)


@pytest.mark.parametrize(
    ("reasons", "flags"),
    [("connect-failure", "URX,UF"), ("reset", "URX,UF"), ("gateway-error", "URX,UF"), ("503,unavailable", "UF")],
)
def test_a_failed_connection_is_retried_for_each_matching_condition(reasons, flags):
    route = f'{{retries: {{attempts: 1, retryOn: "{reasons}"}}, route: [{{destination: {{host: orders}}}}]}}'
    world = SmallWorld(ORDERS, virtual_service(route))
    server = world.workload("orders")
    impostor = msgspec.structs.replace(server, identity="spiffe://cluster.local/ns/shop/sa/x")
    world.addresses[server.addresses[0]] = impostor
    assert explain(Request(host="orders", caller="frontend"), world).verdict.flags == flags


def test_a_grpc_caller_gets_200_with_a_grpc_status():
    verdict = _ask(virtual_service("{directResponse: {status: 503}}"), headers=(("content-type", "application/grpc"),))
    assert (verdict.verdict.status, verdict.verdict.grpc_status) == (200, 14)


def test_a_grpc_web_caller_gets_the_converted_status():
    """A response of the workload's proxy, which gets gRPC, is a gRPC response. To a response of the caller's own
    proxy, which gets gRPC-Web, a gRPC status is added if it has a body."""

    def told(*documents, method="POST"):
        kind = (("content-type", "application/grpc-web"),)
        request = Request(host="web", method=method, path="/s/m", caller="frontend", headers=kind)
        service = (
            ORDERS.partition("---")[0].replace("name: http,", "name: grpc-web,").replace("name: orders", "name: web")
        )
        verdict = explain(request, SmallWorld("---".join((ORDERS, service)), *documents)).verdict
        return verdict.kind, verdict.status, verdict.grpc_status

    assert told(policy("AuthorizationPolicy", "{}")) == (Kind.DENIED, 200, 7)
    nobody = policy(
        "DestinationRule", "{host: web, subsets: [{name: v9, labels: {version: v9}}]}", group="networking.istio.io"
    )
    to_nobody = virtual_service("{route: [{destination: {host: web, subset: v9}}]}", host="web")
    assert told(nobody, to_nobody) == (Kind.FAILED, 503, 14)
    assert told(nobody, to_nobody, method="HEAD") == (Kind.FAILED, 503, 0)
    assert told(virtual_service("{route: [{destination: {host: missing}}]}", host="web")) == (Kind.FAILED, 503, 0)


@pytest.mark.parametrize(("address", "kind"), [("192.0.2.1", Kind.PASSED_ON), ("10.96.0.1", Kind.DELIVERED)])
def test_an_applications_own_tls_is_forwarded_as_tcp(address, kind):
    verdict = _ask(address=address, port=7000, speaks=Speaks.TLS, server_name="orders").verdict
    assert verdict.kind is kind and not verdict.path


def test_a_call_to_an_excluded_port_bypasses_the_callers_proxy():
    world = SmallWorld(ORDERS, bypassed={("frontend", 8080)})
    asked = Request(host="orders", caller="frontend", port=8080, address=world.workload("orders").addresses[0])
    (outcome,) = explain(asked, world).outcomes
    assert "does not intercept this call" in outcome.steps[0].what


def test_an_invalid_path_is_detected_as_tcp_on_an_undeclared_port():
    stripped = virtual_service(
        "{rewrite: {uriRegexRewrite: {match: ^/, rewrite: ''}}, route: [{destination: {host: orders}}]}"
    )
    plain = policy(
        "DestinationRule", "{host: orders, trafficPolicy: {tls: {mode: DISABLE}}}", group="networking.istio.io"
    )
    looked_at = _ask(stripped, plain, port=9000, path="/a").verdict
    assert (looked_at.kind, looked_at.path) == (Kind.DELIVERED, "a")
    old = "{host: orders, trafficPolicy: {tls: {mode: DISABLE}, connectionPool: {http: {h2UpgradePolicy: DO_NOT_UPGRADE}}}}"
    declared = _ask(stripped, policy("DestinationRule", old, group="networking.istio.io"), path="/a").verdict
    assert (declared.kind, declared.status, declared.detail) == (Kind.ANSWERED, 400, "http1.codec_error")
    between_proxies = _ask(stripped, path="/a").verdict
    assert (between_proxies.kind, between_proxies.status, between_proxies.flags) == (Kind.FAILED, 502, "UPE")
    again = stripped.replace("{rewrite:", "{retries: {attempts: 1, retryOn: 5xx}, rewrite:")
    assert _ask(again, path="/a").verdict.flags == "URX,UPE"


def test_a_tunnel_has_a_step_with_its_target():
    rule = "{host: orders, trafficPolicy: {tunnel: {targetHost: far.example.com, targetPort: 443}}}"
    found = _ask(policy("DestinationRule", rule, group="networking.istio.io"), port=7000, speaks=Speaks.BYTES)
    assert found.verdict.kind is Kind.PASSED_ON
    assert "the connection is tunneled in a CONNECT request to far.example.com:443" in str(found)
    assert found.verdict.why == "the connection continues to far.example.com:443, if 10.244.0.2:7000 forwards it"


def test_a_tunnel_is_denied_by_the_policies_of_its_endpoint():
    rule = "{host: orders, trafficPolicy: {tunnel: {targetHost: far.example.com, targetPort: 443}}}"
    tunnel = policy("DestinationRule", rule, group="networking.istio.io")
    nobody = policy("AuthorizationPolicy", "{}")
    found = _ask(tunnel, nobody, port=7000, speaks=Speaks.BYTES).verdict
    assert (found.kind, found.status, found.sources[0].kind) == (Kind.CLOSED, 0, "AuthorizationPolicy")
