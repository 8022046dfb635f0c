"""Near endpoints are preferred: traffic leaves a zone when none of its endpoints is healthy, and comes back."""

from __future__ import annotations

from collections import Counter

import pytest

from e2e.objects import destination_rule, http_service, service, text, to, virtual_service, workload
from eventually import eventually
from fields import proves

pytestmark = pytest.mark.asyncio(loop_scope="module")

ZONES = {"zone-a": "eu/eu-a", "zone-b": "eu/eu-b", "abroad": "us/us-a", "far": "ap/ap-a"}
OUTLIER = {"consecutive5xxErrors": 2, "interval": "0.2s", "baseEjectionTime": "3s", "maxEjectionPercent": 100}


def files(control):
    return {
        "clients.yaml": text(
            workload("client", control=control, locality="eu/eu-a"),
            workload("stranger", control=control, labels={"istio-locality": "us.us-a"}, version="v2"),
        ),
        "services.yaml": text(
            http_service("app"),
            service("remote", {"name": "http", "port": 80, "targetPort": 8080}, selector={"remote": "yes"}),
        ),
        **{f"{name}.yaml": _server(name, control) for name in ZONES},
    }


def _server(name, control, replicas=1):
    labels = {"remote": "yes"} if name in ("abroad", "far") else {"remote": "no"}
    version = "v2" if name == "zone-b" else "v3"
    return text(
        workload(
            name,
            control=control,
            serve="http=8080",
            app="app",
            version=version,
            labels=labels,
            locality=ZONES[name],
            replicas=replicas,
        )
    )


def rule(host="app", **policy):
    return destination_rule(host, **{"outlierDetection": OUTLIER, **policy})


def near(**setting):
    return {"loadBalancer": {"localityLbSetting": setting}}


async def answering(mesh, client="client", host="app", count=40):
    answers = await mesh.requests(client, f"http://{host}/", count, parallel=2)
    assert {answer["status"] for answer in answers} == {200}
    return Counter(answer["body"]["pod"].rpartition("-")[0] for answer in answers)


async def scale(mesh, name, replicas):
    mesh.write(f"{name}.yaml", _server(name, mesh.sockets, replicas))
    await eventually(lambda: len(mesh.pods(name)) == replicas)
    await mesh.ready()


async def test_without_a_rule_every_endpoint_is_called(mesh):
    assert set(await answering(mesh)) == set(ZONES)


@pytest.mark.parametrize("annotated", [False, True])
async def test_traffic_distribution_prefers_the_zone_then_the_region_without_any_rule(mesh, annotated):
    near = http_service("near") | {}
    near["spec"] = {**near["spec"], "selector": {"app": "app"}}
    if annotated:
        near["metadata"] = {
            **near["metadata"],
            "annotations": {"networking.istio.io/traffic-distribution": "PreferClose"},
        }
    else:
        near["spec"]["trafficDistribution"] = "PreferSameZone"
    await mesh.try_out(near)
    assert set(await answering(mesh, host="near")) == {"zone-a"}
    assert set(await answering(mesh, "stranger", host="near")) == {"abroad"}
    await scale(mesh, "zone-a", 0)
    assert set(await answering(mesh, host="near")) == {"zone-b"}
    await scale(mesh, "zone-a", 1)
    await eventually(lambda: answering(mesh, host="near"), lambda found: set(found) == {"zone-a"})


@proves("DestinationRule", "spec.trafficPolicy.loadBalancer.localityLbSetting.enabled")
async def test_with_outlier_detection_the_callers_zone_is_preferred_unless_enabled_is_false(mesh):
    await mesh.try_out(rule())
    assert set(await answering(mesh)) == {"zone-a"}
    assert set(await answering(mesh, "stranger")) == {"abroad"}
    await mesh.tell("client", "load_start", name="moving", url="http://app/", pause=0.02)
    await scale(mesh, "zone-a", 0)
    assert set(await answering(mesh)) == {"zone-b"}
    await scale(mesh, "zone-b", 0)
    assert set(await answering(mesh)) == {"abroad", "far"}
    await scale(mesh, "zone-a", 1)
    assert set(await answering(mesh)) == {"zone-a"}
    seen = await mesh.tell("client", "load_stop", name="moving")
    assert set(seen["statuses"]) == {"200"}, seen["failures"]
    await scale(mesh, "zone-b", 1)
    await mesh.try_out(rule(**near(enabled=False)))
    assert set(await answering(mesh)) == set(ZONES)


async def test_a_near_but_unhealthy_endpoint_is_avoided_until_it_recovers(mesh):
    await mesh.try_out(rule(), virtual_service("app", {"retries": {"attempts": 0}, "route": [to("app")]}))
    await mesh.tell("zone-a", "script", path="/", forever={"status": 500})

    async def left():
        answers = await mesh.requests("client", "http://app/", 4, parallel=1)
        return {answer["body"]["pod"].rpartition("-")[0] for answer in answers} == {"zone-b"}

    await eventually(left)
    await mesh.tell("zone-a", "script", path="/")

    async def back():
        return set(await answering(mesh, count=4)) == {"zone-a"}

    await eventually(back)


async def test_failover_needs_no_max_ejection_percent_and_a_written_one_may_forbid_it(mesh):
    """The outlierDetection of Istio's page about failover. The service has four endpoints: Envoy's default of 10 % would
    eject none."""
    unlimited = {"consecutive5xxErrors": 1, "interval": "0.2s", "baseEjectionTime": "60s"}
    order = near(failover=[{"from": "eu", "to": "us"}])
    plain = virtual_service("app", {"retries": {"attempts": 0}, "route": [to("app")]})

    async def responding():
        answers = await mesh.requests("client", "http://app/failing", 8, parallel=1)
        return {answer["body"]["pod"].rpartition("-")[0] for answer in answers}

    for name in ("zone-a", "zone-b"):
        await mesh.tell(name, "script", path="/failing", forever={"status": 503})
    await mesh.try_out(rule(outlierDetection={**unlimited, "maxEjectionPercent": 20}, **order), plain)
    assert await responding() == {"zone-a"}
    await mesh.try_out(rule(outlierDetection=unlimited, **order), plain)
    await eventually(responding, lambda pods: pods == {"abroad"})
    for name in ("zone-a", "zone-b"):
        await mesh.tell(name, "script", path="/failing")


async def test_endpoints_that_all_fail_are_called_on(mesh):
    unlimited = {"consecutive5xxErrors": 1, "interval": "0.2s", "baseEjectionTime": "60s"}
    plain = virtual_service("app", {"retries": {"attempts": 0}, "route": [to("app")]})
    await mesh.try_out(rule(outlierDetection=unlimited), plain)
    for name in ZONES:
        await mesh.tell(name, "script", path="/failing", forever={"status": 503})

    async def responding():
        answers = await mesh.requests("client", "http://app/failing", 40, parallel=2)
        assert all(isinstance(answer["body"], dict) for answer in answers), answers  # none is made by the proxy
        return {answer["body"]["pod"].rpartition("-")[0] for answer in answers}

    await eventually(responding, lambda pods: pods == set(ZONES))
    for name in ZONES:
        await mesh.tell(name, "script", path="/failing")


@proves("VirtualService", "spec.http[].retries.retryRemoteLocalities")
async def test_a_retry_leaves_the_callers_zone_only_with_retry_remote_localities(mesh):
    """No endpoint is ejected, so each request starts in the caller's zone, and only a retry can end elsewhere."""
    patient = rule(outlierDetection={**OUTLIER, "consecutive5xxErrors": 1000})
    await mesh.tell("zone-a", "script", path="/astray", forever={"status": 503})
    for remote, statuses in ((False, {503}), (True, {200})):
        retries = {"attempts": 3, "retryOn": "5xx", "retryRemoteLocalities": remote, "backoff": "1ms"}
        await mesh.try_out(patient, virtual_service("app", {"retries": retries, "route": [to("app")]}))
        before = await mesh.received("zone-a", "/astray")
        answers = await mesh.requests("client", "http://app/astray", 5, parallel=1)
        assert {answer["status"] for answer in answers} == statuses
        assert {answer["body"]["pod"].rpartition("-")[0] for answer in answers} == {"zone-b" if remote else "zone-a"}
        assert await mesh.received("zone-a", "/astray") == before + (2 if remote else 4) * 5


@proves(
    "DestinationRule",
    "spec.trafficPolicy.loadBalancer.localityLbSetting.failover[].from",
    "spec.trafficPolicy.loadBalancer.localityLbSetting.failover[].to",
)
async def test_calls_fail_over_to_the_configured_region_first(mesh):
    await mesh.try_out(rule("remote"))
    assert set(await answering(mesh, host="remote")) == {"abroad", "far"}
    await mesh.try_out(rule("remote", **near(failover=[{"from": "eu", "to": "ap"}])))
    assert set(await answering(mesh, host="remote")) == {"far"}
    assert set(await answering(mesh, "stranger", host="remote")) == {"abroad"}


@proves(
    "DestinationRule",
    "spec.trafficPolicy.loadBalancer.localityLbSetting.distribute[].from",
    "spec.trafficPolicy.loadBalancer.localityLbSetting.distribute[].to",
)
async def test_calls_are_distributed_to_localities_by_the_configured_shares(mesh):
    shares = {"eu/eu-a/*": 70, "eu/eu-b/*": 20, "us/*": 10}
    await mesh.try_out(destination_rule("app", **near(distribute=[{"from": "eu/*", "to": shares}])))
    seen = await answering(mesh, count=400)
    assert set(seen) == {"zone-a", "zone-b", "abroad"}
    assert 235 <= seen["zone-a"] <= 325 and 45 <= seen["zone-b"] <= 120  # five standard deviations
    assert set(await answering(mesh, "stranger")) == set(ZONES)


@proves("DestinationRule", "spec.trafficPolicy.loadBalancer.localityLbSetting.failoverPriority")
async def test_endpoints_that_share_more_labels_with_the_caller_are_preferred(mesh):
    await mesh.try_out(rule(**near(failoverPriority=["version"])))
    assert set(await answering(mesh, "stranger")) == {"zone-b"}
    assert set(await answering(mesh)) == set(ZONES)  # no endpoint has the client's value
    await mesh.try_out(rule(**near(failoverPriority=["remote=yes", "topology.kubernetes.io/region"])))
    assert set(await answering(mesh, "stranger")) == {"abroad"}
    assert set(await answering(mesh)) == {"abroad", "far"}


async def test_the_mesh_config_can_set_locality_for_every_host(mesh):
    setting = "localityLbSetting: {distribute: [{from: eu, to: {ap: 100}}]}"
    config = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "istio", "namespace": "istio-system"},
        "data": {"mesh": setting},
    }
    await mesh.try_out(config)
    assert set(await answering(mesh)) == {"far"}
    assert set(await answering(mesh, "stranger")) == set(ZONES)
