"""Routing and modification of requests by VirtualService and DestinationRule, on the wire."""

from __future__ import annotations

from collections import Counter

import pytest

from e2e.mesh import tell
from e2e.objects import destination_rule, http_service, istio, text, to, virtual_service, workload
from eventually import eventually
from fields import proves

pytestmark = pytest.mark.asyncio(loop_scope="module")


def files(control):
    return {
        "clients.yaml": text(
            workload("client", control=control, labels={"team": "red"}),
            workload("stranger", control=control, labels={"team": "blue"}),
        ),
        "app.yaml": text(
            workload("app-v1", control=control, serve="http=8080", app="app", version="v1"),
            workload("app-v2", control=control, serve="http=8080", app="app", version="v2"),
            http_service("app"),
        ),
        "other.yaml": text(workload("other", control=control, serve="http=8080"), http_service("other")),
        "pool.yaml": text(workload("pool", control=control, serve="http=8080", replicas=3), http_service("pool")),
        "rules.yaml": text(destination_rule("app", "v1", "v2")),
    }


def versions(answers):
    assert {answer["status"] for answer in answers} == {200}, [a for a in answers if a["status"] != 200][:3]
    return Counter(answer["body"]["version"] for answer in answers)


async def version(mesh, url="http://app/", **arguments):
    return (await mesh.get("client", url, **arguments))["body"]["version"]


async def test_without_a_rule_every_pod_gets_its_share(mesh):
    seen = versions(await mesh.requests("client", "http://app/", 100))
    assert seen["v1"] >= 20
    assert seen["v2"] >= 20


@proves(
    "VirtualService",
    "spec.http[].route[].weight",
)
async def test_weights_split_the_traffic(mesh):
    await mesh.try_out(virtual_service("app", {"route": [to("app", "v1", 90), to("app", "v2", 10)]}))
    seen = versions(await mesh.requests("client", "http://app/", 1000, parallel=16))
    # Binomial, n 1000, p 0.1: five standard deviations are 47.
    assert 53 <= seen["v2"] <= 147


async def test_a_weight_of_zero_gets_no_requests(mesh):
    await mesh.try_out(virtual_service("app", {"route": [to("app", "v1", 100), to("app", "v2", 0)]}))
    assert versions(await mesh.requests("client", "http://app/", 100)) == {"v1": 100}


async def test_headers_select_the_route(mesh):
    matches = [
        {"headers": {"x-exact": {"exact": "yes"}}},
        {"headers": {"x-prefix": {"prefix": "be"}}},
        {"headers": {"x-regex": {"regex": "[0-9]+"}}},
        {"headers": {"x-present": {}}},
    ]
    await mesh.try_out(
        virtual_service("app", {"match": matches, "route": [to("app", "v2")]}, {"route": [to("app", "v1")]}),
    )
    for name, value in (("x-exact", "yes"), ("x-prefix", "before"), ("x-regex", "42"), ("x-present", "anything")):
        assert await version(mesh, headers={name: value}) == "v2", name
    for name, value in (("x-exact", "yes!"), ("x-prefix", "a-be"), ("x-regex", "42a"), ("x-other", "yes")):
        assert await version(mesh, headers={name: value}) == "v1", name


async def test_all_conditions_of_one_match_must_hold(mesh):
    match = [{"headers": {"x-a": {"exact": "1"}}, "uri": {"prefix": "/deep"}, "method": {"exact": "PUT"}}]
    await mesh.try_out(
        virtual_service("app", {"match": match, "route": [to("app", "v2")]}, {"route": [to("app", "v1")]})
    )
    assert await version(mesh, "http://app/deep/er", headers={"x-a": "1"}, method="PUT") == "v2"
    assert await version(mesh, "http://app/deep/er", headers={"x-a": "1"}) == "v1"
    assert await version(mesh, "http://app/deep/er", method="PUT") == "v1"
    assert await version(mesh, "http://app/", headers={"x-a": "1"}, method="PUT") == "v1"


async def test_methods_select_the_route(mesh):
    await mesh.try_out(
        virtual_service(
            "app", {"match": [{"method": {"exact": "POST"}}], "route": [to("app", "v2")]}, {"route": [to("app", "v1")]}
        ),
    )
    assert await version(mesh, method="POST") == "v2"
    assert await version(mesh, method="GET") == "v1"


@proves(
    "VirtualService",
    "spec.http[].match[].uri.exact",
    "spec.http[].match[].uri.prefix",
    "spec.http[].match[].uri.regex",
)
async def test_paths_select_the_route(mesh):
    matches = [{"uri": {"exact": "/one"}}, {"uri": {"prefix": "/two/"}}, {"uri": {"regex": "/three/[a-z]+"}}]
    await mesh.try_out(
        virtual_service("app", {"match": matches, "route": [to("app", "v2")]}, {"route": [to("app", "v1")]})
    )
    for path in ("/one", "/one?query=1", "/two/more", "/three/abc"):
        assert await version(mesh, f"http://app{path}") == "v2", path
    for path in ("/one/", "/two", "/three/123", "/"):
        assert await version(mesh, f"http://app{path}") == "v1", path


async def test_source_labels_select_the_route(mesh):
    match = [{"sourceLabels": {"team": "red"}}]
    await mesh.try_out(
        virtual_service("app", {"match": match, "route": [to("app", "v2")]}, {"route": [to("app", "v1")]})
    )
    assert versions(await mesh.requests("client", "http://app/", 10)) == {"v2": 10}
    assert versions(await mesh.requests("stranger", "http://app/", 10)) == {"v1": 10}


async def test_a_path_without_a_route_is_a_404(mesh):
    await mesh.try_out(virtual_service("app", {"match": [{"uri": {"prefix": "/known"}}], "route": [to("app", "v1")]}))
    assert (await mesh.get("client", "http://app/known"))["status"] == 200
    assert (await mesh.get("client", "http://app/unknown"))["status"] == 404


async def test_a_route_may_lead_to_another_service(mesh):
    await mesh.try_out(virtual_service("app", {"route": [to("other")]}))
    assert (await mesh.get("client", "http://app/"))["body"]["pod"] == mesh.pod("other").name


@proves(
    "VirtualService",
    "spec.http[].headers.request.set",
    "spec.http[].headers.request.add",
    "spec.http[].headers.request.remove",
    "spec.http[].headers.response.set",
    "spec.http[].headers.response.add",
    "spec.http[].headers.response.remove",
)
async def test_headers_of_requests_and_responses_are_added_and_set_and_removed(mesh):
    change = {
        "request": {"set": {"x-set": "new"}, "add": {"x-add": "second"}, "remove": ["x-remove"]},
        "response": {"set": {"server-says": "nothing"}, "add": {"x-answer": "added"}, "remove": ["content-type"]},
    }
    await mesh.try_out(virtual_service("app", {"headers": change, "route": [to("app", "v1")]}))
    sent = {"x-set": "old", "x-add": "first", "x-remove": "gone"}
    answer = await mesh.get("client", "http://app/", headers=sent)
    at_server = answer["body"]["headers"]
    assert [value for name, value in at_server if name == "x-set"] == ["new"]
    added = ",".join(value for name, value in at_server if name == "x-add")
    assert added.replace(" ", "") == "first,second"
    assert not [value for name, value in at_server if name == "x-remove"]
    assert answer["headers"]["server-says"] == "nothing"
    assert answer["headers"]["x-answer"] == "added"
    assert "content-type" not in answer["headers"]


async def test_headers_of_one_destination_are_its_own(mesh):
    marked = {**to("app", "v2", 50), "headers": {"request": {"set": {"x-marked": "v2"}}}}
    await mesh.try_out(virtual_service("app", {"route": [to("app", "v1", 50), marked]}))
    for answer in await mesh.requests("client", "http://app/", 40):
        has = ["x-marked", "v2"] in answer["body"]["headers"]
        assert has == (answer["body"]["version"] == "v2")


async def test_paths_and_hosts_are_rewritten(mesh):
    await mesh.try_out(
        virtual_service(
            "app",
            {
                "match": [{"uri": {"prefix": "/old"}}],
                "rewrite": {"uri": "/new", "authority": "elsewhere.example"},
                "route": [to("app", "v1")],
            },
            {"route": [to("app", "v1")]},
        ),
    )
    body = (await mesh.get("client", "http://app/old/page?x=1"))["body"]
    assert (body["path"], body["host"]) == ("/new/page?x=1", "elsewhere.example")
    body = (await mesh.get("client", "http://app/other"))["body"]
    assert (body["path"], body["host"]) == ("/other", "app")


async def test_the_proxy_sends_redirects(mesh):
    await mesh.try_out(
        virtual_service(
            "app",
            {
                "match": [{"uri": {"prefix": "/moved"}}],
                "redirect": {"uri": "/here", "authority": "other.example", "redirectCode": 308},
            },
            {"route": [to("app", "v1")]},
        ),
    )
    answer = await mesh.get("client", "http://app/moved")
    assert (answer["status"], answer["headers"]["location"]) == (308, "http://other.example/here")
    assert await mesh.received("app-v1", "/moved") == 0


async def test_the_proxy_sends_direct_responses(mesh):
    await mesh.try_out(
        virtual_service(
            "app",
            {"match": [{"uri": {"exact": "/fixed"}}], "directResponse": {"status": 418, "body": {"string": "short"}}},
            {"route": [to("app", "v1")]},
        ),
    )
    answer = await mesh.get("client", "http://app/fixed")
    assert (answer["status"], answer["body"]) == (418, "short")


@proves(
    "DestinationRule",
    "spec.host",
    "spec.subsets[].name",
    "spec.subsets[].labels",
)
async def test_a_subset_of_a_host_selects_the_pods_that_have_its_labels(mesh):
    for subset in ("v1", "v2"):
        await mesh.try_out(virtual_service("app", {"route": [to("app", subset)]}))
        assert versions(await mesh.requests("client", "http://app/", 20)) == {subset: 20}


async def test_a_subset_without_pods_is_unavailable_and_the_rest_goes_on(mesh):
    await mesh.try_out(
        istio(
            "DestinationRule", "other", {"host": "other", "subsets": [{"name": "none", "labels": {"version": "none"}}]}
        ),
        virtual_service(
            "other", {"match": [{"uri": {"prefix": "/none"}}], "route": [to("other", "none")]}, {"route": [to("other")]}
        ),
    )
    assert (await mesh.get("client", "http://other/none"))["status"] == 503
    assert (await mesh.get("client", "http://other/"))["status"] == 200


@proves(
    "DestinationRule",
    "spec.trafficPolicy.loadBalancer.simple",
)
async def test_round_robin_takes_turns(mesh):
    await mesh.try_out(destination_rule("pool", loadBalancer={"simple": "ROUND_ROBIN"}))
    answers = await mesh.requests("client", "http://pool/", 90, parallel=1)
    assert sorted(Counter(answer["body"]["pod"] for answer in answers).values()) == [30, 30, 30]


@proves(
    "DestinationRule",
    "spec.trafficPolicy.loadBalancer.simple",
)
async def test_least_request_avoids_the_pod_that_is_slow(mesh):
    await mesh.try_out(destination_rule("pool", loadBalancer={"simple": "LEAST_REQUEST"}))
    slow = mesh.pods("pool")[0].name
    await tell(mesh.sockets, slow, "script", path="/least", forever={"delay": 0.3})
    answers = await mesh.requests("client", "http://pool/least", 150, parallel=12)
    await tell(mesh.sockets, slow, "script", path="/least")
    seen = Counter(answer["body"]["pod"] for answer in answers)
    assert len(seen) == 3
    assert seen[slow] < min(count for name, count in seen.items() if name != slow)


async def test_moving_the_weight_under_load_fails_no_request(mesh):
    await mesh.try_out(virtual_service("app", {"route": [to("app", "v1")]}))
    await mesh.tell("client", "load_start", name="weights", url="http://app/moving", parallel=4)
    for subset in ("v2", "v1", "v2", "v1", "v2"):
        await mesh.try_out(virtual_service("app", {"route": [to("app", subset)]}))
    before = (await mesh.tell("client", "load_seen", name="weights"))["versions"]

    async def twenty_more():
        now = (await mesh.tell("client", "load_seen", name="weights"))["versions"]
        return now.get("v2", 0) >= before.get("v2", 0) + 20

    await eventually(twenty_more)
    seen = await mesh.tell("client", "load_stop", name="weights")
    assert set(seen["statuses"]) == {"200"}, seen["failures"]
    assert versions(await mesh.requests("client", "http://app/", 20)) == {"v2": 20}


async def test_a_new_subset_and_its_route_can_be_added_in_one_change(mesh):
    """Make before break: the cluster is there before the route that names it, and gone only after it."""
    await mesh.tell("client", "load_start", name="subset", url="http://pool/", parallel=4)
    for number in range(5):
        subset = f"s{number}"
        await mesh.try_out(
            istio(
                "DestinationRule", "pool", {"host": "pool", "subsets": [{"name": subset, "labels": {"version": "v1"}}]}
            ),
            virtual_service("pool", {"route": [to("pool", subset)]}),
        )
        cluster = rf"^cluster\.outbound\|80\|{subset}\|pool.*upstream_rq_total$"

        async def used(cluster=cluster):
            return await mesh.stat("client", cluster) > 0

        await eventually(used)
    seen = await mesh.tell("client", "load_stop", name="subset")
    assert set(seen["statuses"]) == {"200"}, seen["failures"]
