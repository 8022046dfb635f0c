"""A mesh with slow, broken or overloaded services: timeouts, retries, faults, limits, ejection."""

from __future__ import annotations

from collections import Counter

import pytest

from e2e.looking import cluster
from e2e.mesh import tell
from e2e.objects import destination_rule, http_service, service, text, to, virtual_service, workload
from eventually import eventually
from fields import proves

pytestmark = pytest.mark.asyncio(loop_scope="module")


def files(control):
    return {
        "client.yaml": text(workload("client", control=control)),
        "app.yaml": text(
            workload("app", control=control, serve="http=8080 echo=9000"),
            service("app", {"name": "http", "port": 80, "targetPort": 8080}, {"name": "tcp", "port": 9000}),
        ),
        "pool.yaml": text(workload("pool", control=control, serve="http=8080", replicas=3), http_service("pool")),
    }


@proves(
    "VirtualService",
    "spec.http[].timeout",
)
async def test_a_timeout_ends_a_request_that_the_server_does_not_answer_in_time(mesh):
    await mesh.tell("app", "script", path="/late", forever={"delay": 19})
    await mesh.try_out(virtual_service("app", {"timeout": "0.4s", "retries": {"attempts": 0}, "route": [to("app")]}))
    answer = await mesh.get("client", "http://app/late")
    assert answer["status"] == 504
    assert 0.35 <= answer["seconds"] < 18
    assert await mesh.received("app", "/late") == 1
    assert (await mesh.get("client", "http://app/in-time"))["status"] == 200


async def test_without_a_timeout_a_slow_response_arrives(mesh):
    await mesh.tell("app", "script", path="/slow", steps=[{"delay": 1.5}])
    answer = await mesh.get("client", "http://app/slow")
    assert answer["status"] == 200
    assert answer["seconds"] >= 1.5


async def test_retries_are_made_and_counted_at_the_server(mesh):
    await mesh.try_out(virtual_service("app", {"retries": {"attempts": 3, "retryOn": "5xx"}, "route": [to("app")]}))
    await mesh.tell("app", "script", path="/third-time", steps=[{"status": 500}, {"status": 500}])
    assert (await mesh.get("client", "http://app/third-time"))["status"] == 200
    assert await mesh.received("app", "/third-time") == 3


@proves(
    "VirtualService",
    "spec.http[].retries.attempts",
    "spec.http[].retries.retryOn",
)
async def test_requests_that_match_retry_on_are_retried_up_to_the_configured_attempts(mesh):
    await mesh.try_out(virtual_service("app", {"retries": {"attempts": 2, "retryOn": "5xx"}, "route": [to("app")]}))
    await mesh.tell("app", "script", path="/never", forever={"status": 500})
    assert (await mesh.get("client", "http://app/never"))["status"] == 500
    assert await mesh.received("app", "/never") == 3


async def test_no_retry_with_zero_attempts(mesh):
    await mesh.try_out(virtual_service("app", {"retries": {"attempts": 0}, "route": [to("app")]}))
    await mesh.tell("app", "script", path="/once", forever={"status": 503})
    assert (await mesh.get("client", "http://app/once"))["status"] == 503
    assert await mesh.received("app", "/once") == 1


async def test_the_retries_of_the_mesh_config_apply_where_a_route_sets_none(mesh):
    settings = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "istio", "namespace": "istio-system"},
        "data": {"mesh": "defaultHttpRetryPolicy: {attempts: 3, retryOn: 5xx}"},
    }
    own = {"retries": {"attempts": 1, "retryOn": "5xx"}, "route": [to("app")]}
    routed = {"match": [{"uri": {"prefix": "/routed"}}], "route": [to("app")]}
    await mesh.try_out(settings, virtual_service("app", routed, own))
    for path, requests in (("/routed", 4), ("/own", 2)):
        await mesh.tell("app", "script", path=path, forever={"status": 500})
        assert (await mesh.get("client", f"http://app{path}"))["status"] == 500
        assert await mesh.received("app", path) == requests
    await mesh.try_out(settings)
    await mesh.tell("app", "script", path="/unrouted", forever={"status": 500})
    assert (await mesh.get("client", "http://app/unrouted"))["status"] == 500
    assert await mesh.received("app", "/unrouted") == 4
    off = {**settings, "data": {"mesh": "defaultHttpRetryPolicy: {attempts: 0}"}}
    await mesh.try_out(off)
    await mesh.tell("app", "script", path="/off", forever={"status": 503})
    assert (await mesh.get("client", "http://app/off"))["status"] == 503
    assert await mesh.received("app", "/off") == 1


async def test_status_codes_can_be_named_for_retries(mesh):
    await mesh.try_out(
        virtual_service("app", {"retries": {"attempts": 2, "retryOn": "418,connect-failure"}, "route": [to("app")]}),
    )
    await mesh.tell("app", "script", path="/teapot", steps=[{"status": 418}])
    await mesh.tell("app", "script", path="/error", steps=[{"status": 500}])
    assert (await mesh.get("client", "http://app/teapot"))["status"] == 200
    assert (await mesh.get("client", "http://app/error"))["status"] == 500
    assert await mesh.received("app", "/error") == 1


@proves(
    "VirtualService",
    "spec.http[].retries.perTryTimeout",
)
async def test_a_try_that_exceeds_the_per_try_timeout_is_retried(mesh):
    await mesh.try_out(
        virtual_service(
            "app",
            {"retries": {"attempts": 2, "perTryTimeout": "0.3s", "retryOn": "gateway-error"}, "route": [to("app")]},
        ),
    )
    await mesh.tell("app", "script", path="/hangs-once", steps=[{"delay": 10}])
    assert (await mesh.get("client", "http://app/hangs-once"))["status"] == 200
    assert await mesh.received("app", "/hangs-once") == 2


@proves(
    "VirtualService",
    "spec.http[].fault.abort.httpStatus",
)
async def test_requests_are_aborted_with_the_given_status_at_the_configured_percentage(mesh):
    fault = {"abort": {"httpStatus": 451, "percentage": {"value": 50}}}
    await mesh.try_out(virtual_service("app", {"fault": fault, "route": [to("app")]}))
    before = await mesh.received("app", "/faulty")
    seen = Counter(answer["status"] for answer in await mesh.requests("client", "http://app/faulty", 400))
    assert set(seen) == {200, 451}
    assert 150 <= seen[451] <= 250  # five standard deviations
    assert await mesh.received("app", "/faulty") - before == seen[200]


@proves(
    "VirtualService",
    "spec.http[].fault.delay.fixedDelay",
    "spec.http[].fault.delay.percentage.value",
)
async def test_delays_are_injected(mesh):
    fault = {"delay": {"fixedDelay": "0.5s", "percentage": {"value": 100}}}
    await mesh.try_out(virtual_service("app", {"fault": fault, "route": [to("app")]}))
    answer = await mesh.get("client", "http://app/")
    assert answer["status"] == 200
    assert answer["seconds"] >= 0.5


async def test_a_fault_for_some_requests_leaves_the_others_alone(mesh):
    fault = {"abort": {"httpStatus": 500, "percentage": {"value": 100}}}
    match = [{"headers": {"x-break": {"exact": "yes"}}}]
    await mesh.try_out(
        virtual_service("app", {"match": match, "fault": fault, "route": [to("app")]}, {"route": [to("app")]})
    )
    assert (await mesh.get("client", "http://app/", headers={"x-break": "yes"}))["status"] == 500
    assert (await mesh.get("client", "http://app/"))["status"] == 200


@proves(
    "DestinationRule",
    "spec.trafficPolicy.connectionPool.http.http1MaxPendingRequests",
    "spec.trafficPolicy.connectionPool.http.http2MaxRequests",
)
@pytest.mark.parametrize("pool", [
    {"http": {"http1MaxPendingRequests": 1, "maxRequestsPerConnection": 1}, "tcp": {"maxConnections": 1}},
    {"http": {"http2MaxRequests": 1}},
], ids=["waiting", "under way"])  # fmt: skip
async def test_requests_beyond_the_limits_of_the_connection_pool_get_503(mesh, pool):
    await mesh.try_out(
        destination_rule("app", connectionPool=pool),
        virtual_service("app", {"retries": {"attempts": 0}, "route": [to("app")]}),
    )
    await mesh.tell("app", "script", path="/busy", forever={"delay": 0.5})
    answers = await mesh.requests("client", "http://app/busy", 20, parallel=20)
    await mesh.tell("app", "script", path="/busy")
    seen = Counter(answer["status"] for answer in answers)
    assert set(seen) == {200, 503}, seen
    assert seen[503] >= 10
    overflow = [answer for answer in answers if answer["status"] == 503]
    assert all("overflow" in str(answer["body"]) for answer in overflow)
    assert {answer["headers"].get("x-envoy-overloaded") for answer in overflow} == {"true"}
    stats = r"^cluster\.outbound\|80\|\|app.*upstream_rq_pending_overflow$"
    assert await mesh.stat("client", stats) + await mesh.stat("app", r"upstream_rq_pending_overflow$") >= 10


@proves(
    "DestinationRule",
    "spec.trafficPolicy.connectionPool.tcp.maxConnections",
)
async def test_tcp_connections_beyond_max_connections_are_closed(mesh):
    await mesh.try_out(destination_rule("app", connectionPool={"tcp": {"maxConnections": 2}}))
    try:
        answer = await mesh.tell("client", "many", host="app", port=9000, count=6)
    except AssertionError as refused:
        answer = str(refused)
    assert "IncompleteReadError" in answer or "Connection" in answer
    assert await mesh.stat("client", r"^cluster\.outbound\|9000\|\|app.*upstream_cx_overflow$") > 0


@proves(
    "DestinationRule",
    "spec.trafficPolicy.outlierDetection.consecutive5xxErrors",
    "spec.trafficPolicy.outlierDetection.interval",
    "spec.trafficPolicy.outlierDetection.baseEjectionTime",
)
async def test_a_failing_pod_is_ejected_and_gets_no_requests_until_its_ejection_time_is_over(mesh):
    outlier = {"consecutive5xxErrors": 9, "interval": "0.5s", "baseEjectionTime": "60s", "maxEjectionPercent": 50}
    once = virtual_service("pool", {"retries": {"attempts": 0}, "route": [to("pool")]})
    balanced = {"loadBalancer": {"simple": "ROUND_ROBIN"}}
    await mesh.try_out(destination_rule("pool", outlierDetection=outlier, **balanced), once)
    bad = mesh.pods("pool")[1].name
    await tell(mesh.sockets, bad, "script", path="/work", forever={"status": 500})
    seen = Counter(answer["status"] for answer in await mesh.requests("client", "http://pool/work", 60, parallel=1))
    assert seen[500] >= 9  # Envoy's default is 5

    async def ejected():
        return await mesh.stat("client", r"^cluster\.outbound\|80\|\|pool.*ejections_active$")

    assert await eventually(ejected) == 1
    before = (await tell(mesh.sockets, bad, "received"))["/work"]
    answers = await mesh.requests("client", "http://pool/work", 60, parallel=4)
    assert {answer["status"] for answer in answers} == {200}
    assert bad not in {answer["body"]["pod"] for answer in answers}
    assert (await tell(mesh.sockets, bad, "received"))["/work"] == before

    # It returns after its ejection time, at the next interval: by default after thirty seconds, with an interval of
    # ten.
    outlier |= {"interval": "0.25s", "baseEjectionTime": "4s"}
    await mesh.try_out(destination_rule("pool", outlierDetection=outlier, **balanced), once)
    had = (await cluster(mesh, "client", "outbound|80||pool.shop.svc.cluster.local"))["outlier_detection"]
    assert (had["interval"], had["base_ejection_time"]) == ("0.250s", "4s")
    await mesh.requests("client", "http://pool/work", 60, parallel=1)
    await tell(mesh.sockets, bad, "script", path="/work")

    async def back():
        return bad in {each["body"]["pod"] for each in await mesh.requests("client", "http://pool/work", 6, parallel=1)}

    assert not await back()
    assert await eventually(back, limit=40)


@proves(
    "DestinationRule",
    "spec.trafficPolicy.outlierDetection.maxEjectionPercent",
)
@pytest.mark.parametrize(("most", "ejected"), [(40, 1), (100, 3)])
async def test_ejection_respects_the_maximum_percentage_when_all_pods_fail(mesh, most, ejected):
    outlier = {"consecutive5xxErrors": 1, "interval": "0.2s", "baseEjectionTime": "60s", "maxEjectionPercent": most}
    await mesh.try_out(
        destination_rule("pool", outlierDetection=outlier, loadBalancer={"simple": "ROUND_ROBIN"}),
        virtual_service("pool", {"retries": {"attempts": 0}, "route": [to("pool")]}),
    )
    for pod in mesh.pods("pool"):
        await tell(mesh.sockets, pod.name, "script", path="/all", forever={"status": 500})

    async def active():
        await mesh.requests("client", "http://pool/all", 6, parallel=1)
        return await mesh.stat("client", r"^cluster\.outbound\|80\|\|pool.*ejections_active$") == ejected

    await eventually(active)
    await mesh.requests("client", "http://pool/all", 30, parallel=1)
    assert await active()
    for pod in mesh.pods("pool"):
        await tell(mesh.sockets, pod.name, "script", path="/all")


async def test_a_request_that_reached_the_server_is_not_retried(mesh):
    """By default only requests that surely did not arrive are retried."""
    await mesh.tell("app", "script", path="/reset", forever={"reset": True})
    assert (await mesh.get("client", "http://app/reset", method="POST"))["status"] == 503
    assert await mesh.received("app", "/reset") == 1
    assert (await mesh.get("client", "http://app/after"))["status"] == 200
