import pytest

from explain.worlds import LEGACY, ORDERS, SmallWorld, policy, virtual_service
from weft.explain.decision import DecisionStage, Kind
from weft.explain.explain import explain
from weft.explain.request import Request
from weft.model.proxy import UPGRADE_METHOD

TO_ORDERS = "route: [{destination: {host: orders}}]"


def _ask(*routes, path="/", more=(), **request):
    world = SmallWorld(ORDERS, virtual_service(*routes), *more)
    return explain(Request(host="orders", path=path, caller="frontend", **request), world)


def _service(name, protocol, app=""):
    return f"""
---
apiVersion: v1
kind: Service
metadata: {{name: {name}, namespace: shop}}
spec: {{selector: {{app: {app or name}}}, clusterIP: 10.96.0.9, ports: [{{name: {protocol}, port: 80, targetPort: 8082}}]}}
"""


def test_redirects_and_direct_responses_need_no_endpoint():
    moved = _ask("{redirect: {uri: /there, redirectCode: 308}}").verdict
    assert (moved.kind, moved.status, moved.location) == (Kind.ANSWERED, 308, "http://orders/there")
    said = _ask("{directResponse: {status: 418}}").verdict
    assert (said.status, said.detail, said.location) == (418, "direct_response", "")
    assert _ask("{directResponse: {status: 201}}", path="/x").verdict.location == "http://orders/x"


def test_a_direct_response_also_applies_to_preflights():
    asking = (("origin", "https://a.example"), ("access-control-request-method", "GET"))
    cors = 'corsPolicy: {allowOrigins: [{exact: "https://a.example"}]}'
    for route, detail in (
        (f"{{{TO_ORDERS}, {cors}}}", "cors_response"),
        (f"{{redirect: {{uri: /x}}, {cors}}}", "direct_response"),
    ):
        assert _ask(route, method="OPTIONS", headers=asking).verdict.detail == detail


def test_a_request_without_a_route_gets_404():
    verdict = _ask(f"{{match: [{{uri: {{exact: /a}}}}], {TO_ORDERS}}}", path="/b").verdict
    assert (verdict.status, verdict.flags, verdict.detail) == (404, "NR", "route_not_found")


def test_the_route_step_has_file_and_line():
    (outcome,) = _ask(f"{{name: first, {TO_ORDERS}}}").outcomes
    step = next(each for each in outcome.steps if "the route first matches" in each.what)
    assert step.sources[0].kind == "VirtualService" and step.sources[0].file == "mesh.yaml" and step.sources[0].line
    assert outcome.verdict.route == "first"


def test_the_verdict_has_the_rewritten_path_authority_and_headers():
    changes = "headers: {request: {set: {x-env: prod}, remove: [x-user]}}"
    route = f"{{match: [{{uri: {{prefix: /a}}}}], rewrite: {{uri: /b, authority: other}}, {changes}, {TO_ORDERS}}}"
    verdict = _ask(route, path="/a/../a/c", headers=(("x-user", "alice"), ("connection", "close"))).verdict
    assert (verdict.path, verdict.host) == ("/b/c", "other")
    sent = dict(verdict.headers)
    assert sent["x-env"] == "prod" and sent["x-envoy-original-path"] == "/a/c"
    assert "x-user" not in sent and "connection" not in sent


def test_weights_make_outcomes_with_odds():
    weighted = "route: [{destination: {host: orders}, weight: 90}, {destination: {host: nobody}, weight: 10}]"
    outcomes = _ask(f"{{{weighted}}}").outcomes
    assert [(round(each.odds, 2), each.verdict.kind) for each in outcomes] == [
        (0.9, Kind.DELIVERED),
        (0.1, Kind.FAILED),
    ]
    assert outcomes[1].verdict.flags == "NC"


def test_identical_destinations_are_one_outcome():
    one, other = "{destination: {host: orders}, weight: 30}", "{destination: {host: orders}, weight: 20}"
    found = _ask(f"{{route: [{one}, {other}]}}")
    assert found.certain
    assert any(step.what.startswith("by weight 50 of 50 the request goes to") for step in found.outcomes[0].steps)


def test_a_destination_with_different_headers_is_another_outcome():
    own = "{destination: {host: orders}, weight: 30, headers: {request: {set: {x-env: new}}}}"
    found = _ask(f"{{route: [{own}, {{destination: {{host: orders}}, weight: 70}}]}}")
    assert [round(each.odds, 2) for each in found.outcomes] == [0.7, 0.3]
    assert any(step.what.endswith("; request headers: sets x-env") for step in found.outcomes[1].steps)


def test_header_changes_and_mirroring_are_steps():
    found = _ask(
        "{route: [{destination: {host: orders}}], mirrors: [{destination: {host: orders}, percentage: {value: 5}}],"
        " headers: {request: {set: {x-a: v}, add: {x-b: v}, remove: [x-c]}, response: {add: {x-d: v}}}}"
    )
    told = [step.what for step in found.outcomes[0].steps]
    assert "request headers: sets x-a, x-b and removes x-c; response headers: sets x-d" in told
    assert any(each.startswith("5 % of requests are mirrored to") for each in told)


def test_retry_conditions_depend_on_the_method_for_http1():
    def told(method):
        (outcome,) = explain(
            Request(host="legacy", method=method, caller="frontend"), SmallWorld(LEGACY + _service("legacy", "http"))
        ).outcomes
        return next(each.what for each in outcome.steps if "retried" in each.what)

    assert told("GET").endswith("reset-before-request,reset")
    assert told("POST").endswith("reset-before-request")


def test_grpc_web_arrives_as_grpc():
    def told(kind):
        request = Request(host="web", method="POST", path="/s/m", caller="frontend", headers=(("content-type", kind),))
        return explain(request, SmallWorld(ORDERS + _service("web", "grpc-web", "orders"))).outcomes[0]

    outcome = told("application/grpc-web+proto")
    assert any("gRPC-Web becomes gRPC" in each.what for each in outcome.steps)
    sent = dict(outcome.verdict.headers)
    assert (sent["content-type"], sent["te"]) == ("application/grpc", "trailers")
    assert dict(told("application/json").verdict.headers)["content-type"] == "application/json"


def test_timeouts_and_retries_are_in_the_steps():
    (outcome,) = _ask(
        f"{{timeout: 3s, retries: {{attempts: 5, perTryTimeout: 1s, retryOn: 5xx}}, {TO_ORDERS}}}"
    ).outcomes
    assert any("timeout 3 s" in each.what and "5 times on 5xx, 1 s per try" in each.what for each in outcome.steps)


def test_a_grpc_server_gets_the_deadline():
    grpc = (("content-type", "application/grpc"),)
    assert ("grpc-timeout", "3000m") in _ask(f"{{timeout: 3s, {TO_ORDERS}}}", headers=grpc).verdict.headers
    assert not [each for each in _ask(f"{{{TO_ORDERS}}}", headers=grpc).verdict.headers if each[0] == "grpc-timeout"]


@pytest.mark.parametrize(
    ("said", "route", "told"),
    [
        ("10S", "", "10000m"),
        ("10S", "timeout: 3s, ", "3000m"),
        ("2S", "timeout: 3s, ", "2000m"),
        ("2S", "retries: {attempts: 1, perTryTimeout: 1s}, ", "1000m"),
        ("200000S", "", "200000S"),
        ("soon", "", "soon"),
        ("0S", "timeout: 3s, ", "3000m"),
    ],
)
def test_the_grpc_deadline_is_limited_by_the_route(said, route, told):
    headers = (("content-type", "application/grpc"), ("grpc-timeout", said))
    assert ("grpc-timeout", told) in _ask(f"{{{route}{TO_ORDERS}}}", headers=headers).verdict.headers


def test_an_invalid_path_is_rejected():
    assert _ask(f"{{{TO_ORDERS}}}", path="/a#b").verdict.status == 400


def test_the_decision_of_an_external_authorizer_is_unknown():
    mesh_config = """
apiVersion: v1
kind: ConfigMap
metadata: {name: istio, namespace: istio-system}
data:
  mesh: |
    extensionProviders:
      - name: gate
        envoyExtAuthzGrpc: {service: orders.shop.svc.cluster.local, port: 9000}
"""
    asked = policy(
        "AuthorizationPolicy", "{action: CUSTOM, provider: {name: gate}, rules: [{to: [{operation: {paths: [/a]}}]}]}"
    )
    explained = _ask(f"{{{TO_ORDERS}}}", path="/a", more=(mesh_config, asked))
    assert explained.verdict.kind is Kind.UNKNOWN and "authorizer outbound|9000||orders" in explained.verdict.why
    assert explained.outcomes[0].steps[-1].stage is DecisionStage.POLICY
    assert _ask(f"{{{TO_ORDERS}}}", path="/b", more=(mesh_config, asked)).verdict.kind is Kind.DELIVERED


def test_a_match_on_a_generated_header_is_unknown():
    by_id = "{match: [{headers: {x-request-id: {exact: a}}}], directResponse: {status: 200}}"
    assert _ask(by_id).verdict.kind is Kind.UNKNOWN
    assert _ask(by_id, headers=(("x-request-id", "a"),)).verdict.status == 200


def test_unsupported_upgrades_are_rejected():
    for wanted, kind in (("websocket", Kind.DELIVERED), ("SPDY/3.1", Kind.DELIVERED), ("else", Kind.ANSWERED)):
        verdict = _ask_for(("Connection", "keep-alive, Upgrade"), ("Upgrade", wanted))
        assert verdict.kind is kind, wanted
    assert (verdict.status, verdict.detail) == (403, "upgrade_failed")
    passed_over = _ask_for(("Connection", "upgrade"), ("Upgrade", "h2c"))
    assert passed_over.kind is Kind.DELIVERED and not any(name == "upgrade" for name, _ in passed_over.headers)
    assert ("upgrade", "tcp") in list(_ask_for(("Connection", "upgrade"), ("Upgrade", "tcp")).headers)


def test_the_method_of_an_upgrade_is_sent_between_the_proxies_only():
    for wanted in ("websocket", "tcp"):
        assert not any(
            name == UPGRADE_METHOD for name, _ in _ask_for(("Connection", "upgrade"), ("Upgrade", wanted)).headers
        )


def _ask_for(*headers):
    return explain(Request(host="orders", caller="frontend", headers=headers), SmallWorld(ORDERS)).verdict
