from datetime import UTC, datetime

from msgspec.structs import replace
from tests.inspect.describe.test_gateways import edge
from tests.inspect.test_stage import DENY, shop

from authority import Authority
from model.builders import instance, service
from weft.api.parse import parse
from weft.api.request_test import RequestCase
from weft.base.problem import Where
from weft.files.documents import read_documents
from weft.inspect.compare.recent_traffic import SeenRequest
from weft.inspect.compare.what_if import difference
from weft.inspect.stage import Stage
from weft.mesh.calls import Calls
from weft.model.names import ObjectKey
from weft.model.on_demand import Telling

ROUTE = """
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: payments, namespace: shop}
spec: {hosts: [payments], http: [{route: [{destination: {host: payments}}]}]}
"""
STRICT = """
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: default, namespace: shop}
spec: {mtls: {mode: STRICT}}
"""
NOW = datetime(2026, 11, 16, tzinfo=UTC)


def with_policy(text=DENY, *more):
    mesh = shop(*more)
    for document in read_documents(text.encode(), "deny.yaml").documents:
        mesh.apply(document.key, parse(document).values)
    return mesh


def test_a_policy_changes_only_the_proxies_it_selects_and_the_requests_it_stops():
    found = difference(Stage(shop()), Stage(with_policy()), [], NOW)
    (proxies,) = found.proxies
    assert (proxies.pods, found.untouched) == (("payments-0.shop",), 2)
    assert [(each.what, each.kind, each.name) for each in proxies.resources] == [
        ("changed", "listener", "virtualInbound")
    ]
    stopped = {each.request.split()[0]: each.after for each in found.requests}
    assert stopped.keys() == {"frontend-0.shop", "payments-0.shop"}
    assert all(after[0].startswith("denied 403") for after in stopped.values())
    assert found.tried == 3
    assert [(each.what, str(each)) for each in found.objects] == [
        ("added", "AuthorizationPolicy shop/only-orders (deny.yaml:2)")
    ]
    assert {each.because for each in found.requests} == {"AuthorizationPolicy shop/only-orders (deny.yaml:2)"}


def test_strict_mtls_is_reported_for_pods_without_a_proxy_that_call_in_plaintext():
    bare = instance("bare-0", "bare", address="10.244.0.9", workload="bare")
    found = difference(Stage(shop(bare)), Stage(with_policy(STRICT, bare)), [], NOW)
    (kept_out,) = found.requests
    assert kept_out.request == "bare-0.shop GET http://payments.shop.svc.cluster.local:80/"
    assert (kept_out.before[0].split(":")[0], kept_out.after[0].split(":")[0]) == ("delivered", "closed")
    assert kept_out.because == "PeerAuthentication shop/default (deny.yaml:2)"


def test_a_changed_request_has_the_outcomes_before_and_after():
    without = shop()
    without.apply(ObjectKey("Service", "shop", "payments"), ())
    cases = [RequestCase(Where(), "orders", to, "shop") for to in ("http://payments/", "http://nobody/")]
    found = difference(Stage(shop()), Stage(without), cases, NOW).requests[0]
    assert found.request == "orders GET http://payments/"
    assert found.before[0].startswith("delivered: outbound|80||payments.shop.svc.cluster.local as GET payments/")
    assert found.after == ("failed: payments does not resolve",)
    assert found.because == "Service shop/payments"


def seen(caller="frontend.shop", to="http://payments/charge/7", status=200, count=3):
    return SeenRequest(caller, "POST", to, "http://payments/charge/*", status, count)


def test_recent_traffic_is_judged_by_how_often_it_was_seen():
    recent = [seen(), seen("orders.shop", count=5)]
    found = difference(Stage(shop()), Stage(with_policy()), [], NOW, recent).recent
    assert (found.judged, found.unjudged, sum(each.count for each in found.requests)) == (8, 0, 3)
    (stopped,) = found.requests
    assert stopped.request == "frontend.shop POST http://payments/charge/* (200)"
    assert (stopped.count, stopped.because) == (3, "AuthorizationPolicy shop/only-orders (deny.yaml:2)")
    assert stopped.before[0].startswith("delivered") and stopped.before[0].endswith(" as POST payments/charge/*")
    assert stopped.after[0].startswith("denied 403")


def test_a_request_whose_status_does_not_follow_from_its_url_is_not_judged():
    recent = [
        seen(status=200),  # the URL alone does not explain why the policy allowed it
        seen(status=403),
        seen("gone.shop"),
        seen(to="http://nobody/", status=503),
    ]
    found = difference(Stage(with_policy()), Stage(shop()), [], NOW, recent).recent
    assert (found.judged, found.unjudged, sum(each.count for each in found.requests)) == (3, 9, 3)


def test_a_route_that_only_moved_within_its_file_is_no_difference():
    here, there = shop(), shop()
    for mesh, file in ((here, "a.yaml"), (there, "b.yaml")):
        for document in read_documents(ROUTE.encode(), file).documents:
            mesh.apply(document.key, parse(document).values)
    found = difference(Stage(here), Stage(there), [], NOW)
    assert (found.proxies, found.untouched) == ((), 3)


def test_a_new_certificate_changes_the_gateway_that_presents_it():
    """The history does not keep private keys. A missing key alone is no change."""
    before, after = edge(), edge()
    key = ObjectKey("Secret", "edge", "shop")
    for credential in after.get(key):
        before.apply(key, (credential.hidden(),))
    assert difference(Stage(before), Stage(after), [], NOW).proxies == ()
    for credential in after.get(key):
        before.apply(key, (replace(credential, chain=Authority().issue("*.a.com").certificate).hidden(),))
    (proxies,) = difference(Stage(before), Stage(after), [], NOW).proxies
    assert proxies.pods == ("edge-0.edge",)
    assert [(each.what, each.kind, each.name) for each in proxies.resources] == [
        ("changed", "secret", "kubernetes://shop")
    ]


def test_no_change_is_no_difference():
    found = difference(Stage(shop()), Stage(shop()), [], NOW)
    assert (found.proxies, found.requests, found.untouched) == ((), (), 3)


def test_crossing_the_on_demand_limit_is_reported_and_removes_no_resources():
    """Proxies that run keep their resources, so no resource is reported as removed, and no request as held."""
    late = service("late", addresses=("10.96.0.8",))
    for calls in (None, told_now()):
        stages = [Stage(mesh, calls=calls) for mesh in (shop(few=1), shop(late, few=1))]
        found = difference(*stages, [], NOW)
        assert {resource.what for each in found.proxies for resource in each.resources} <= {"added", "changed"}
        assert all(
            "late" in resource.name or resource.name == "80" for each in found.proxies for resource in each.resources
        )
        assert all("late" in each.request for each in found.requests)
        (retold,) = found.retold
        assert retold.on_demand and len(retold.groups) == 3
        assert retold.why == "2 services could be called from here, more than 1; weft.dev/on-demand: auto"
    back = difference(*reversed(stages), [], NOW)
    assert [each.on_demand for each in back.retold] == [False]
    assert difference(stages[1], stages[1], [], NOW).retold == ()


def told_now():
    """The calls of a control plane whose groups connected when they were on demand."""
    calls = Calls()
    stage = Stage(shop(service("late", addresses=("10.96.0.8",)), few=1))
    for group in stage.groups():
        calls.tell(group, Telling(every=False, held=True, ranges=("10.96.0.0/16",)))
    return calls.copy(fixed=True)
