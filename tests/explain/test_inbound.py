import msgspec
import pytest

from explain.worlds import LEGACY, ORDERS, SmallWorld, policy
from weft.explain.decision import Kind
from weft.explain.explain import explain
from weft.explain.request import Request, Speaks

SELECTED = "selector: {matchLabels: {app: orders}}"


def _mode(mode):
    return policy("PeerAuthentication", f"{{{SELECTED}, mtls: {{mode: {mode}}}}}")


def _ask(*texts, caller="legacy", port=8080, **request):
    world = SmallWorld(ORDERS, LEGACY, *texts)
    address = world.workload("orders").addresses[0]
    return explain(Request(host="orders", port=port, address=address, caller=caller, **request), world)


@pytest.mark.parametrize(
    ("mode", "kind"), [("STRICT", Kind.CLOSED), ("PERMISSIVE", Kind.DELIVERED), ("DISABLE", Kind.DELIVERED)]
)
def test_plaintext_is_accepted_unless_the_mode_is_strict(mode, kind):
    assert _ask(_mode(mode)).verdict.kind is kind
    assert _ask(_mode(mode), port=7000, speaks=Speaks.BYTES).verdict.kind is kind


def test_the_rejection_names_the_port_and_the_peer_authentication():
    refused = _ask(_mode("STRICT"))
    assert "no plaintext on port 8080" in refused.verdict.why
    assert "PeerAuthentication shop/orders" in [str(each) for each in refused.outcomes[0].steps[-1].sources]
    (outcome,) = _ask(_mode("PERMISSIVE")).outcomes
    chain = next(each for each in outcome.steps if each.stage == "inbound")
    assert "PeerAuthentication shop/orders" in [str(each) for each in chain.sources]


def test_a_rejected_connection_is_a_503_for_a_caller_with_a_proxy():
    assert _ask(_mode("STRICT"), caller="frontend").verdict.kind is Kind.CLOSED  # the caller's proxy forwards bytes
    rule = policy(
        "DestinationRule", "{host: orders, trafficPolicy: {tls: {mode: DISABLE}}}", group="networking.istio.io"
    )
    world = SmallWorld(ORDERS, _mode("STRICT"), rule)
    verdict = explain(Request(host="orders", caller="frontend"), world).verdict
    assert (verdict.kind, verdict.status) == (Kind.FAILED, 503)


SIDECAR = "{workloadSelector: {labels: {app: orders}}, ingress: [{port: {number: 8080, protocol: TCP, name: tcp}}]}"


def test_http2_forwarded_to_an_application_as_tcp_is_unknown():
    world = SmallWorld(ORDERS, policy("Sidecar", SIDECAR, group="networking.istio.io"))
    (outcome,) = explain(Request(host="orders", caller="frontend"), world).outcomes
    assert outcome.verdict.kind is Kind.UNKNOWN
    assert "gets the HTTP/2 of the caller's proxy unchanged" in outcome.verdict.why and "502" in outcome.verdict.why
    assert outcome.steps[-1].what == "orders treats port 8080 as TCP"
    own = explain(Request(host="orders", caller="frontend", speaks=Speaks.HTTP2), world)  # the application's own HTTP/2
    assert own.verdict.kind is Kind.DELIVERED


def _sharing(says, name):
    """Another Service for port 8080; the oldest of both is the first by name."""
    shared = ORDERS.split("---")[0].replace("name: orders", f"name: {name}").replace("0.1", "0.9")
    return shared.replace("{name: http,", f"{{name: {says},")


@pytest.mark.parametrize("name", ["bytes", "tongues"])  # before and after `orders`
@pytest.mark.parametrize("says", ["tcp-web", "unsaid"])
def test_callers_of_services_that_share_a_port_get_the_protocol_of_their_service(name, says):
    world = SmallWorld(ORDERS, _sharing(says, name), LEGACY)
    by_path = policy(
        "AuthorizationPolicy", f"{{{SELECTED}, rules: [{{to: [{{operation: {{paths: [/ok], ports: ['8080']}}}}]}}]}}"
    )
    guarded = SmallWorld(ORDERS, _sharing(says, name), LEGACY, by_path)
    assert explain(Request(host=name, caller="frontend"), world).verdict.kind is Kind.DELIVERED
    for path, kind in (("/ok", Kind.DELIVERED), ("/no", Kind.DENIED)):
        assert explain(Request(host="orders", path=path, caller="frontend"), world).verdict.kind is Kind.DELIVERED
        assert explain(Request(host="orders", path=path, caller="frontend"), guarded).verdict.kind is kind
    sent = explain(Request(host=name, caller="frontend", speaks=Speaks.BYTES), world).verdict
    # If the oldest Service declares HTTP, a Service without a declared protocol does not admit other bytes.
    assert sent.kind is (Kind.CLOSED if (name, says) == ("tongues", "unsaid") else Kind.DELIVERED)
    assert explain(Request(host=name, caller="frontend", speaks=Speaks.BYTES), guarded).verdict.kind is Kind.CLOSED


@pytest.mark.parametrize(
    ("says", "how"), [("tcp-web", "treats port 8080 as TCP"), ("unsaid", "in the HTTP version that they")]
)
def test_without_mtls_the_oldest_service_decides_a_shared_ports_protocol(says, how):
    """The oldest Service decides. How the application treats the HTTP/2 is unknown."""
    world = SmallWorld(ORDERS, _sharing(says, "bytes"), _mode("DISABLE"))
    (outcome,) = explain(Request(host="orders", caller="frontend"), world).outcomes
    assert outcome.verdict.kind is Kind.UNKNOWN and "gets the HTTP/2 of the caller's proxy" in outcome.verdict.why
    assert how in outcome.steps[-1].what
    assert {"Service shop/bytes", "Service shop/orders"} <= {str(each) for each in outcome.steps[-1].sources}
    for asked in (
        {"speaks": Speaks.HTTP2},
        {"host": "bytes"},
    ):  # the application's own HTTP/2, and HTTP/1.1 as it comes
        request = msgspec.structs.replace(Request(host="orders", caller="frontend"), **asked)
        assert explain(request, world).verdict.kind is Kind.DELIVERED
    newer = SmallWorld(ORDERS, _sharing(says, "tongues"), _mode("DISABLE"))
    assert explain(Request(host="orders", caller="frontend"), newer).verdict.kind is Kind.DELIVERED


def test_policies_match_the_identity_in_the_callers_certificate():
    only = policy("AuthorizationPolicy", f"{{{SELECTED}, rules: [{{from: [{{source: {{namespaces: [shop]}}}}]}}]}}")
    world = SmallWorld(ORDERS, LEGACY, only)
    known = explain(Request(host="orders", caller="frontend"), world).verdict
    unknown = explain(
        Request(host="orders", caller="legacy", port=8080, address=world.workload("orders").addresses[0]), world
    )
    assert known.kind is Kind.DELIVERED
    assert (unknown.verdict.kind, unknown.verdict.status) == (Kind.DENIED, 403)
    assert unknown.verdict.detail == "rbac_access_denied_matched_policy[none]"
    assert str(unknown.outcomes[0].steps[-1].sources[0]) == "AuthorizationPolicy shop/orders rule[0]"


def test_a_handshake_that_a_policy_denies_names_the_policy():
    only = policy("AuthorizationPolicy", f"{{{SELECTED}, rules: [{{from: [{{source: {{namespaces: [jobs]}}}}]}}]}}")
    world = SmallWorld(ORDERS, LEGACY, only)
    (outcome,) = explain(Request(host="orders", caller="frontend", port=7000, speaks=Speaks.BYTES), world).outcomes
    assert (outcome.verdict.kind, outcome.verdict.detail) == (Kind.CLOSED, "tls_error")
    assert outcome.verdict.why == "a policy denies the connection: the TLS handshake fails"
    assert [str(each) for each in outcome.steps[-1].sources] == ["AuthorizationPolicy shop/orders rule[0]"]
    assert outcome.steps[-1].stage == "policy"
    assert outcome.steps[-1].what == (
        "the caller is spiffe://cluster.local/ns/shop/sa/frontend, and no ALLOW rule matches, so the call is denied "
        "(orders rule[0]: caller cluster.local/ns/shop/sa/frontend is not in namespace jobs)"
    )
    assert outcome.verdict.sources == outcome.steps[-1].sources


def test_the_peer_authentication_is_listed_before_services_that_share_the_port():
    more = "\n---\n".join(
        ORDERS.split("---")[0].replace("name: orders", f"name: more{number}").replace("0.1", f"0.{number + 2}")
        for number in range(6)
    )
    refused = _ask(_mode("STRICT"), more)
    assert refused.verdict.kind is Kind.CLOSED and len(refused.verdict.sources) == 8
    assert str(refused.verdict.sources[0]) == "PeerAuthentication shop/orders"


def test_a_denied_connection_is_closed():
    deny = policy(
        "AuthorizationPolicy", f"{{{SELECTED}, action: DENY, rules: [{{to: [{{operation: {{ports: ['7000']}}}}]}}]}}"
    )
    assert _ask(deny, port=7000, speaks=Speaks.BYTES).verdict.kind is Kind.CLOSED
    assert _ask(deny).verdict.kind is Kind.DELIVERED


def test_non_http_bytes_are_rejected_by_an_http_chain():
    assert _ask(speaks=Speaks.BYTES).verdict.kind is Kind.CLOSED
    deny = policy(
        "AuthorizationPolicy", f"{{{SELECTED}, action: DENY, rules: [{{to: [{{operation: {{ports: ['1']}}}}]}}]}}"
    )
    kinds = {each.kind for each in _ask(deny, speaks=Speaks.BYTES).verdict.sources}
    assert kinds == {"Service"}  # a policy that matches nothing is not named as the cause


def test_an_application_that_does_not_listen_cannot_be_reached():
    world = SmallWorld(ORDERS, LEGACY)
    server = world.workload("orders")

    world.addresses[server.addresses[0]] = msgspec.structs.replace(server, ports=frozenset({1}))
    verdict = explain(Request(host="orders", caller="frontend"), world).verdict
    assert (verdict.kind, verdict.status) == (Kind.FAILED, 503)


def test_a_port_that_is_not_intercepted_bypasses_the_proxy():
    world = SmallWorld(ORDERS, LEGACY, _mode("STRICT"), bypassed={("orders", 8080)})
    asked = Request(host="orders", caller="legacy", port=8080, address=world.workload("orders").addresses[0])
    assert explain(asked, world).verdict.kind is Kind.DELIVERED
    assert explain(Request(host="orders", caller="frontend"), world).verdict.kind is Kind.FAILED


def test_mutual_tls_fails_at_a_port_without_tls():
    always = policy(
        "DestinationRule", "{host: orders, trafficPolicy: {tls: {mode: ISTIO_MUTUAL}}}", group="networking.istio.io"
    )
    world = SmallWorld(ORDERS, _mode("DISABLE"), always)
    verdict = explain(Request(host="orders", caller="frontend"), world).verdict
    assert (verdict.status, verdict.flags) == (503, "URX,UF")
    assert (
        explain(Request(host="orders", caller="frontend", port=7000, speaks=Speaks.BYTES), world).verdict.kind
        is Kind.CLOSED
    )
