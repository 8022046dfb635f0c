"""Tests of the debug pages about requests and the past."""

import json

import pytest

from control.proxy import Client, changes, serving
from control.test_quarantine import services
from eventually import eventually
from model.builders import instance, service
from weft.base.ambiguous import AMBIGUOUS
from weft.control.plane import ControlPlane
from weft.control.sync_status import STALE, SYNCED
from weft.inspect.attach import attach_debug
from weft.model.names import ObjectKey, labels_of
from weft.model.sidecar import EgressListener, Sidecar
from weft.xds.types import CLUSTER

FAULT = """
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: payments, namespace: shop}
spec: {hosts: [payments], http: [{directResponse: {status: 418}}]}
"""
RULE = """
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: payments, namespace: shop}
spec: {host: payments}
"""
MEMBERS = """
apiVersion: security.istio.io/v1
kind: RequestAuthentication
metadata: {name: tokens, namespace: shop}
spec: {jwtRules: [{issuer: a.example, jwksUri: https://a.example/keys}]}
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: no-guests, namespace: shop}
spec: {action: DENY, rules: [{when: [{key: "request.auth.claims[group]", values: [guests]}]}]}
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: orders, namespace: shop}
spec: {rules: [{from: [{source: {namespaces: [shop]}}]}]}
"""


@pytest.fixture
async def plane():
    made = ControlPlane()
    made.apply([])
    for name, address in (("orders", "10.244.0.2"), ("payments", "10.244.0.3")):
        made.put(ObjectKey("Pod", "shop", name), (instance(name, name, address=address, meshed=True),))
    made.put(ObjectKey("Service", "shop", "payments"), (service("payments", addresses=("10.96.0.7",)),))
    yield made
    await made.close()


async def asked(plane, name, **query):
    answer = await attach_debug(plane).answer(name, query)
    return answer.status, json.loads(answer.body)


def question(**more):
    return json.dumps({"caller": "orders", "to": "http://payments/", **more})


async def test_a_request_is_explained(plane):
    status, said = await asked(plane, "explain", question=question())
    assert status == 200
    assert said["explanation"]["outcomes"][0]["verdict"]["kind"] == "delivered"
    assert said["lines"][-1].startswith("→ delivered")


async def test_a_stale_proxy_is_reported(tmp_path):
    async with serving(tmp_path, services()) as (plane, channel):
        pod = instance("web-0", "web", address="10.244.0.1", meshed=True, service_account="web")
        plane.put(ObjectKey("Pod", "shop", "web-0"), (pod,))
        client = Client(channel)
        await client.subscribe(CLUSTER)
        await client.answer(await client.read())
        await eventually(lambda: plane.diagnosis.proxies()[0].sync.resources[CLUSTER].state == SYNCED)
        asks = question(caller="web-0")
        assert "STALE" not in str(await asked(plane, "explain", question=asks))
        plane.apply(changes(services().replace("port: 80", "port: 81")))
        await eventually(lambda: plane.diagnosis.proxies()[0].sync.resources[CLUSTER].state == STALE)
        _, said = await asked(plane, "explain", question=asks)
        assert said["problems"][0]["what"].startswith("web-0's proxy is STALE since push ")


async def test_an_outcome_that_never_changed_has_its_start_time(plane):
    status, said = await asked(plane, "bisect", question=question(to="http://nobody/"))
    came = (await asked(plane, "history"))[1]["moments"][0]["at"]
    assert (status, said["moment"], said["since"], said["whole"]) == (200, None, came, True)
    assert said["after"] == ["failed: nobody does not resolve"]


async def test_bisect_names_the_responsible_object_among_several(plane):
    plane.apply(changes(FAULT + "---" + RULE))
    _, said = await asked(plane, "bisect", question=question(headers=[["x-user", "ann"]]))
    assert [change["what"] for change in said["moment"]["changes"]] == ["added", "added"]
    assert said["after"][0].startswith("answered 418")
    assert said["because"] == "VirtualService shop/payments (mesh.yaml:2)"


async def test_bisect_names_the_policy_that_denies_a_tokens_claims(plane):
    plane.apply(changes(MEMBERS))
    token = {"text": "a-token", "claims": {"iss": "a.example", "group": "guests"}}
    _, said = await asked(plane, "bisect", question=question(tokens=[token]))
    assert said["after"][0].startswith("denied 403")
    assert said["because"] == "AuthorizationPolicy shop/no-guests (mesh.yaml:7)"


async def test_bisect_names_the_request_authentication_that_rejects_an_unsigned_token(plane):
    plane.apply(changes(MEMBERS))
    token = {"text": "a-token", "claims": {"iss": "a.example"}, "verified": False}
    _, said = await asked(plane, "bisect", question=question(tokens=[token]))
    assert said["after"][0].startswith("denied 401")
    assert said["because"] == "RequestAuthentication shop/tokens (mesh.yaml:2)"


async def test_explaining_requests_leaves_no_indexes_behind(tmp_path):
    async with serving(tmp_path, services()) as (plane, channel):
        for number, name in enumerate(("web", "asker")):
            pod = instance(name, name, address=f"10.244.0.{number}", meshed=True, service_account=name)
            plane.put(ObjectKey("Pod", "shop", name), (pod,))
        client = Client(channel)
        await client.subscribe(CLUSTER)
        await client.answer(await client.read())
        served = {*plane.mesh.looked_from}
        for number in range(1_000):
            shown = (EgressListener((f"*/{number}.example",)),)
            plane.put(ObjectKey("Sidecar", "shop", "x"), (Sidecar("x", "shop", labels_of({"app": "asker"}), shown),))
            assert (await asked(plane, "explain", question=question(caller="asker")))[0] == 200
        assert plane.mesh.looked_from >= served
        assert len(plane.mesh.looked_from - served) < 5


async def test_the_past_is_explained_as_it_was(plane):
    status, said = await asked(plane, "explain", question=question(when="@-1"))
    assert status == 200
    assert said["explanation"]["outcomes"][0]["verdict"]["kind"] == "failed"  # the service did not exist then


async def test_a_moment_before_the_first_pod_is_reported_as_such(plane):
    status, problem = await asked(plane, "explain", question=question(when="@0"))
    assert (status, problem["what"]) == (400, "at moment 0 there was no workload or pod yet")
    assert problem["hint"] == "there are moments 0 to 2; list them with: weft history -A"
    for moments, deserted in ((("@0", ""), [0]), (("@0", "@0"), [0]), (("@1", "@2"), [])):
        asks = json.dumps(dict(zip(("before", "after"), moments, strict=True)))
        assert (await asked(plane, "diff", question=asks))[1]["deserted"] == deserted


async def test_a_caller_that_did_not_exist_at_the_moment_is_reported_with_the_moment(plane):
    plane.put(ObjectKey("Pod", "shop", "late"), (instance("late", "late", address="10.244.0.4", meshed=True),))
    assert (await asked(plane, "explain", question=question(caller="late")))[0] == 200
    status, problem = await asked(plane, "explain", question=question(caller="late", when="@1"))
    assert (status, problem["what"]) == (400, "at moment 1 there was no workload or pod `late`")
    assert problem["hint"].endswith("\nthere are moments 0 to 3; list them with: weft history -A")


async def test_history_lists_added_changed_and_removed_objects(plane):
    plane.put(ObjectKey("Service", "shop", "payments"), ())
    status, said = await asked(plane, "history")
    assert status == 200
    assert [[each["what"] for each in moment["changes"]] for moment in said["moments"]] == [
        ["added", "added"],
        ["added"],
        ["removed"],
    ]


@pytest.mark.parametrize(
    ("asks", "said"),
    [
        ("", "`question` is not valid"),
        ("{}", "`question` is not valid"),
        (question(caller="nobody"), "no workload or pod"),
        (question(to="ftp://x"), "the scheme `ftp` is not supported"),
        (question(when="soon"), "is not a time"),
        (question(when="@99"), "not recorded"),
    ],
)
async def test_an_invalid_question_gets_a_problem(plane, asks, said):
    status, problem = await asked(plane, "explain", question=asks)
    assert status == 400
    assert said in problem["what"]


@pytest.mark.parametrize(("kind", "name"), [("pod", "payments"), ("service", "payments")])
async def test_a_pod_or_a_service_is_described(plane, kind, name):
    status, said = await asked(plane, "describe", question=json.dumps({"kind": kind, "name": name}))
    assert status == 200
    assert said["lines"][0].startswith(("Pod: payments.shop", "Service: shop/payments"))
    assert said["facts"]["namespace"] == "shop"


async def test_describing_an_unknown_pod_returns_a_problem(plane):
    status, problem = await asked(plane, "describe", question='{"kind": "service", "name": "paymnts"}')
    assert (status, problem["hint"]) == (400, "did you mean `payments`?")


async def test_tls_check_compares_callers_and_servers(plane):
    status, (row,) = await asked(plane, "tls-check", question='{"host": "payments.shop", "caller": "orders"}')
    assert (status, row["status"], row["client"]) == (200, "OK", "auto (mTLS)")


async def test_two_moments_are_compared(plane):
    seen = {
        "caller": "orders.shop",
        "method": "GET",
        "to": "http://payments/",
        "shape": "http://payments/",
        "status": 200,
        "count": 4,
    }
    plane.put(ObjectKey("Service", "shop", "payments"), ())
    status, said = await asked(plane, "diff", question=json.dumps({"before": "@-1", "recent": [seen]}))
    assert (status, said["before"], said["after"]) == (200, 2, 3)
    found = said["difference"]
    assert [(each["what"], each["object"]["name"]) for each in found["objects"]] == [("removed", "payments")]
    assert found["proxies"] and found["requests"]
    assert (found["recent"]["judged"], found["recent"]["requests"][0]["count"]) == (4, 4)
    _, back = await asked(plane, "diff", question=json.dumps({"before": "@3", "after": "@2"}))
    assert [each["what"] for each in back["difference"]["objects"]] == ["added"]
    status, problem = await asked(plane, "diff", question=json.dumps({"before": "@-9"}))
    assert status == 400 and "not recorded" in problem["what"]


async def test_an_ambiguous_name_has_a_different_status_than_an_unknown_one(plane):
    pod = instance("orders", "orders", address="10.244.0.9", meshed=True, namespace="bank")
    plane.put(ObjectKey("Pod", "bank", "orders"), (pod,))
    status, problem = await asked(plane, "explain", question=question())
    assert (status, problem["what"]) == (AMBIGUOUS, "`orders` is in several namespaces: bank, shop")
