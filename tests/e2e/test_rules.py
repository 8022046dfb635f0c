"""DestinationRules on the wire: load balancing, number of connections, and their lifetime."""

from __future__ import annotations

import asyncio
import itertools
import subprocess
from collections import Counter

import pytest

from e2e.looking import cluster
from e2e.mesh import tell
from e2e.objects import destination_rule, istio, service, text, to, virtual_service, workload
from eventually import eventually
from fields import proves

pytestmark = pytest.mark.asyncio(loop_scope="module")

USERS = [f"user-{number}" for number in range(12)]
POOL_STATS = r"^cluster\.outbound\|80\|\|pool\.shop\.svc\.cluster\.local\."


def files(control):
    return {
        "clients.yaml": text(workload("client", control=control), workload("other", control=control)),
        "pool.yaml": _pool(control, replicas=3),
        "services.yaml": text(
            service(
                "pool",
                {"name": "http", "port": 80, "targetPort": 8080},
                {"name": "http-more", "port": 81, "targetPort": 8080},
                {"name": "tcp", "port": 9000},
            ),
            service("direct", {"name": "http", "port": 8080}, selector={"app": "pool"}),
            service(
                "plain",
                {"name": "tcp", "port": 9000},
                {"name": "http-closed", "port": 90, "targetPort": 9999},
                {"name": "http", "port": 91, "targetPort": 8080},
            ),
        ),
        "plain.yaml": text(
            workload(
                "plain",
                control=control,
                serve="http=8080 echo=9000",
                annotations={"sidecar.istio.io/inject": "false"},
            )
        ),
    }


def _pool(control, replicas):
    return text(workload("pool", control=control, serve="http=8080 echo=9000", replicas=replicas))


def by(**hashing):
    return destination_rule("pool", loadBalancer={"consistentHash": hashing})


async def chosen(mesh, user, *, url="http://pool/", **arguments):
    """The one pod that gets a user's requests."""
    answers = await mesh.requests("client", url, 4, parallel=2, **arguments)
    pods = {answer["body"]["pod"] for answer in answers}
    assert len(pods) == 1, (user, pods)
    return pods.pop()


async def spread(mesh, url="http://pool/", count=30, workload="client", **arguments):
    answers = await mesh.requests(workload, url, count, parallel=1, **arguments)
    assert {answer["status"] for answer in answers} == {200}
    return Counter(answer["body"]["pod"] for answer in answers)


async def by_header(mesh):
    return {user: await chosen(mesh, user, headers={"x-user": user}) for user in USERS}


@proves(
    "DestinationRule",
    "spec.trafficPolicy.loadBalancer.consistentHash.httpHeaderName",
    "spec.trafficPolicy.loadBalancer.consistentHash.minimumRingSize",
    "spec.trafficPolicy.loadBalancer.consistentHash.ringHash.minimumRingSize",
    "spec.trafficPolicy.loadBalancer.consistentHash.maglev.tableSize",
)
async def test_with_a_ring_or_maglev_table_of_the_given_size_a_header_leads_to_the_same_pod(mesh):
    for table, kind, size in (
        ({"minimumRingSize": 64}, "ring_hash", {"minimum_ring_size": "64"}),
        ({"ringHash": {"minimumRingSize": 2048}}, "ring_hash", {"minimum_ring_size": "2048"}),
        ({"maglev": {"tableSize": 251}}, "maglev", {"table_size": "251"}),
    ):
        await mesh.try_out(by(httpHeaderName="x-user", **table))
        assert len(set((await by_header(mesh)).values())) > 1, table
        had = await cluster(mesh, "client", "outbound|80||pool.shop.svc.cluster.local")
        assert (had["lb_policy"], had[f"{kind}_lb_config"]) == (kind.upper(), size)


async def test_when_a_pod_is_removed_most_hashes_keep_their_pod(mesh):
    await mesh.try_out(by(httpHeaderName="x-user"))
    before = await by_header(mesh)
    await scale(mesh, 2)
    left = {pod.name for pod in mesh.pods("pool")}
    after = await by_header(mesh)
    await scale(mesh, 3)
    assert set(after.values()) == left
    stayed = [user for user, pod in before.items() if pod in left and after[user] == pod]
    assert len(stayed) >= len(USERS) / 3, (before, after)  # a ring for two pods has more points for each


async def scale(mesh, replicas):
    mesh.write("pool.yaml", _pool(mesh.sockets, replicas))
    await eventually(lambda: len(mesh.pods("pool")) == replicas)
    await mesh.ready()


@proves("DestinationRule", "spec.trafficPolicy.loadBalancer.consistentHash.httpQueryParameterName")
async def test_requests_with_the_same_query_parameter_go_to_the_same_pod(mesh):
    await mesh.try_out(by(httpQueryParameterName="user"))
    pods = {user: await chosen(mesh, user, url=f"http://pool/?user={user}") for user in USERS}
    assert len(set(pods.values())) > 1


@proves("DestinationRule", "spec.trafficPolicy.loadBalancer.consistentHash.useSourceIp")
async def test_with_use_source_ip_one_caller_reaches_the_same_pod_over_http_and_tcp(mesh):
    await mesh.try_out(by(useSourceIp=True))
    pod = await chosen(mesh, "all", keep_alive=False)
    for _ in range(5):
        answer = await mesh.tell("client", "tcp", host="pool", port=9000, send="hello", half_close=True)
        assert answer["received"] == "hello<end of file seen>"
    seen = {each.name: (await tell(mesh.sockets, each.name, "tcp_seen"))["peers"] for each in mesh.pods("pool")}
    assert len([name for name, peers in seen.items() if peers]) == 1
    assert pod in seen


@proves(
    "DestinationRule",
    "spec.trafficPolicy.loadBalancer.consistentHash.httpCookie.name",
    "spec.trafficPolicy.loadBalancer.consistentHash.httpCookie.path",
    "spec.trafficPolicy.loadBalancer.consistentHash.httpCookie.ttl",
    "spec.trafficPolicy.loadBalancer.consistentHash.httpCookie.attributes[].name",
    "spec.trafficPolicy.loadBalancer.consistentHash.httpCookie.attributes[].value",
)
async def test_a_caller_without_the_hash_cookie_gets_it_as_configured_and_then_reaches_the_same_pod(mesh):
    attributes = [{"name": "SameSite", "value": "Lax"}, {"name": "Secure"}]
    await mesh.try_out(by(httpCookie={"name": "who", "path": "/", "ttl": "90s", "attributes": attributes}))
    first = await mesh.get("client", "http://pool/")
    given, *more = [part.strip() for part in first["headers"]["set-cookie"].split(";")]
    assert given.startswith("who=")
    assert {"Max-Age=90", "Path=/", "SameSite=Lax", "Secure"} <= set(more)
    assert await chosen(mesh, "given", headers={"cookie": given.replace('"', "")}) == first["body"]["pod"]
    pods = {user: await chosen(mesh, user, headers={"cookie": f"who={user}"}) for user in USERS}
    assert len(set(pods.values())) > 1


@proves("DestinationRule", "spec.trafficPolicy.loadBalancer.simple")
async def test_random_load_balancing_neither_rotates_nor_avoids_a_slow_pod(mesh):
    await mesh.try_out(destination_rule("pool", loadBalancer={"simple": "RANDOM"}))
    answers = await mesh.requests("client", "http://pool/", 150, parallel=1)
    order = [answer["body"]["pod"] for answer in answers]
    assert min(Counter(order).values()) >= 20 and len(set(order)) == 3
    assert sum(one == other for one, other in itertools.pairwise(order)) >= 20
    slow = mesh.pods("pool")[0].name
    await tell(mesh.sockets, slow, "script", path="/late", forever={"delay": 0.2})
    answers = await mesh.requests("client", "http://pool/late", 400, parallel=12)
    await tell(mesh.sockets, slow, "script", path="/late")
    # A third of the requests, as there are three pods; four standard deviations. Least-request would send half of that.
    assert sum(answer["body"]["pod"] == slow for answer in answers) >= 95


@proves("DestinationRule", "spec.trafficPolicy.loadBalancer.simple")
async def test_passthrough_load_balancing_calls_the_address_that_the_caller_used(mesh):
    wanted = mesh.pods("pool")[1]
    url, headers = f"http://{wanted.addresses[0]}:8080/", {"host": "direct:8080"}
    assert len(await spread(mesh, url, headers=headers)) == 3  # the host is used, not the address
    await mesh.try_out(destination_rule("direct", loadBalancer={"simple": "PASSTHROUGH"}))
    assert await spread(mesh, url, headers=headers) == {wanted.name: 30}


@proves("DestinationRule", "spec.trafficPolicy.portLevelSettings[]")
async def test_port_level_settings_replace_all_settings_of_the_host(mesh):
    ports = [{"port": {"number": 81}, "loadBalancer": {"consistentHash": {"useSourceIp": True}}}]
    await mesh.try_out(
        destination_rule(
            "pool",
            loadBalancer={"simple": "ROUND_ROBIN"},
            connectionPool={"http": {"h2UpgradePolicy": "DO_NOT_UPGRADE"}},
            portLevelSettings=ports,
        )
    )
    assert sorted((await spread(mesh)).values()) == [10, 10, 10]
    assert len(await spread(mesh, "http://pool:81/")) == 1
    assert await mesh.stat("client", POOL_STATS + "upstream_cx_http1_total$") > 0
    assert await mesh.stat("client", POOL_STATS.replace("80", "81") + "upstream_cx_http1_total$") == 0


@proves(
    "DestinationRule",
    "spec.subsets[].name",
    "spec.subsets[].labels",
    "spec.subsets[].trafficPolicy",
    "spec.workloadSelector.matchLabels",
    "spec.host",
)
async def test_rules_of_one_host_are_merged_and_subsets_override_hosts_and_selectors_limit_rules(mesh):
    subset = {"name": "all", "labels": {"app": "pool"}, "trafficPolicy": {"loadBalancer": {"simple": "ROUND_ROBIN"}}}
    sticky = {"loadBalancer": {"consistentHash": {"useSourceIp": True}}}
    await mesh.try_out(
        istio("DestinationRule", "pool-subsets", {"host": "pool", "subsets": [subset]}),
        istio("DestinationRule", "pool-policy", {"host": "pool.shop.svc.cluster.local", "trafficPolicy": sticky}),
        istio(
            "DestinationRule",
            "pool-for-other",
            {
                "host": "pool",
                "workloadSelector": {"matchLabels": {"app": "other"}},
                "trafficPolicy": {"loadBalancer": {"simple": "ROUND_ROBIN"}},
            },
        ),
        virtual_service(
            "pool", {"match": [{"uri": {"prefix": "/all"}}], "route": [to("pool", "all")]}, {"route": [to("pool")]}
        ),
    )
    assert sorted((await spread(mesh, "http://pool/all")).values()) == [10, 10, 10]
    assert len(await spread(mesh, "http://pool/")) == 1
    assert sorted((await spread(mesh, "http://pool/", workload="other")).values()) == [10, 10, 10]


@proves(
    "DestinationRule",
    "spec.trafficPolicy.connectionPool.http.maxRequestsPerConnection",
    "spec.trafficPolicy.connectionPool.http.maxConcurrentStreams",
    "spec.trafficPolicy.connectionPool.http.idleTimeout",
    "spec.trafficPolicy.connectionPool.http.h2UpgradePolicy",
    "spec.trafficPolicy.connectionPool.http.useClientProtocol",
)
async def test_http_pool_settings_limit_streams_and_requests_and_idle_time_and_decide_the_version_of_connections(mesh):
    async def connections(word="total"):
        return await mesh.stat("client", POOL_STATS + f"upstream_cx_{word}$")

    await mesh.try_out(destination_rule("pool", connectionPool={"http": {"maxRequestsPerConnection": 1}}))
    before = await connections(), await connections("http2_total")
    await mesh.requests("client", "http://pool/", 10, parallel=1)
    assert (await connections() - before[0], await connections("http2_total") - before[1]) == (10, 10)

    one = destination_rule("pool", loadBalancer={"consistentHash": {"useSourceIp": True}}, connectionPool={
        "http": {"maxConcurrentStreams": 2, "idleTimeout": "0.3s"}})  # fmt: skip
    await mesh.try_out(one)
    for pod in mesh.pods("pool"):
        await tell(mesh.sockets, pod.name, "script", path="/slow", forever={"delay": 0.3})
    before, idle = await connections(), await connections("idle_timeout")
    assert {each["status"] for each in await mesh.requests("client", "http://pool/slow", 6, parallel=6)} == {200}
    assert await connections() - before >= 3

    async def let_go():
        return await connections("idle_timeout") > idle

    await eventually(let_go)

    for policy in ({"h2UpgradePolicy": "DO_NOT_UPGRADE"}, {"useClientProtocol": True}):
        await mesh.try_out(destination_rule("pool", connectionPool={"http": policy}))
        before = await connections("http1_total"), await connections("http2_total")
        assert (await mesh.get("client", "http://pool/"))["status"] == 200
        assert (await connections("http1_total"), await connections("http2_total")) == (before[0] + 1, before[1])


@proves("DestinationRule", "spec.trafficPolicy.connectionPool.http.h2UpgradePolicy")
async def test_a_server_outside_of_the_mesh_is_called_over_http2_only_if_the_rule_upgrades(mesh):
    """The server supports only HTTP/1, so the response also shows the protocol that was used."""
    stats = r"^cluster\.outbound\|91\|\|plain\.shop.*upstream_cx_http2_total$"
    for policy, status in (("DEFAULT", 200), ("UPGRADE", 502)):
        await mesh.try_out(destination_rule("plain", connectionPool={"http": {"h2UpgradePolicy": policy}}))
        assert (await mesh.get("client", "http://plain:91/"))["status"] == status
        assert (await mesh.stat("client", stats) > 0) is (policy == "UPGRADE")


@proves(
    "DestinationRule",
    "spec.trafficPolicy.connectionPool.tcp.idleTimeout",
    "spec.trafficPolicy.connectionPool.tcp.maxConnectionDuration",
    "spec.trafficPolicy.connectionPool.tcp.tcpKeepalive.time",
    "spec.trafficPolicy.connectionPool.tcp.tcpKeepalive.interval",
    "spec.trafficPolicy.connectionPool.tcp.tcpKeepalive.probes",
)
async def test_tcp_connections_have_the_configured_idle_timeout_and_maximum_duration_and_keepalive(mesh):
    for limit in ("idleTimeout", "maxConnectionDuration"):
        await mesh.try_out(destination_rule("plain", connectionPool={"tcp": {limit: "0.5s"}}))
        answer = await mesh.tell("client", "tcp", host="plain", port=9000, send="hello")
        assert answer["received"] == "hello", (limit, answer)  # the proxy closed it, not the server
    keepalive = {"time": "77s", "interval": "5s", "probes": 4}
    await mesh.try_out(destination_rule("plain", connectionPool={"tcp": {"tcpKeepalive": keepalive}}))
    talking = asyncio.create_task(mesh.tell("client", "tcp", host="plain", port=9000, send="hello", timeout=10))
    timers = await eventually(lambda: _timers(mesh.pod("client").pid, mesh.pod("plain").addresses[0]))
    assert "keepalive,1min1" in timers, timers
    await talking
    had = await cluster(mesh, "client", "outbound|9000||plain.shop.svc.cluster.local")
    expected = {"keepalive_time": 77, "keepalive_interval": 5, "keepalive_probes": 4}
    assert had["upstream_connection_options"]["tcp_keepalive"] == expected


def _timers(pid, address):
    """The kernel's timers of a pod's connections to an address."""
    command = ["nsenter", "-t", str(pid), "-n", "ss", "-tnoH", "dst", f"{address}:9000"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    return "\n".join(line for line in lines if "keepalive" in line)


@proves("DestinationRule", "spec.trafficPolicy.connectionPool.tcp.connectTimeout")
async def test_a_connect_timeout_ends_a_call_to_a_silent_server(mesh):
    nobody = mesh.pod("client").addresses[0].rpartition(".")[0] + ".251"
    entry = {
        "hosts": ["silent.example.com"],
        "ports": [{"number": 80, "name": "http", "protocol": "HTTP"}],
        "resolution": "STATIC",
        "endpoints": [{"address": nobody}],
    }
    await mesh.try_out(
        istio("ServiceEntry", "silent", entry),
        istio(
            "DestinationRule",
            "silent",
            {"host": "silent.example.com", "trafficPolicy": {"connectionPool": {"tcp": {"connectTimeout": "0.2s"}}}},
        ),
        istio(
            "VirtualService",
            "silent",
            {
                "hosts": ["silent.example.com"],
                "http": [{"retries": {"attempts": 0}, "route": [to("silent.example.com")]}],
            },
        ),
    )
    answer = await mesh.get("client", "http://silent.example.com/")
    assert answer["status"] == 503
    assert await mesh.stat("client", r"silent\.example\.com\.upstream_cx_connect_timeout$") == 1


@proves(
    "DestinationRule",
    "spec.trafficPolicy.connectionPool.http.maxRetries",
    "spec.trafficPolicy.retryBudget.percent",
    "spec.trafficPolicy.retryBudget.minRetryConcurrency",
)
async def test_retries_stay_within_the_retry_budget_or_max_retries(mesh):
    for pod in mesh.pods("pool"):
        await tell(mesh.sockets, pod.name, "script", path="/broken", forever={"status": 503, "delay": 0.05})
    again = virtual_service("pool", {"retries": {"attempts": 3, "retryOn": "5xx"}, "route": [to("pool")]})

    async def tries(**policy):
        await mesh.try_out(*((destination_rule("pool", **policy),) if policy else ()), again)
        before = await mesh.received("pool", "/broken")
        answers = await mesh.requests("client", "http://pool/broken", 40, parallel=20)
        assert {answer["status"] for answer in answers} == {503}
        return await mesh.received("pool", "/broken") - before

    assert await tries(retryBudget={"percent": 100, "minRetryConcurrency": 100}) == 160
    assert await tries(retryBudget={"percent": 0, "minRetryConcurrency": 0}) == 40
    assert await tries(connectionPool={"http": {"maxRetries": 100}}) == 160
    assert 40 < await tries(connectionPool={"http": {"maxRetries": 1}}) < 80
    assert 40 < await tries() < 120  # a fifth of the active requests, plus three
    assert await mesh.stat("client", POOL_STATS + "upstream_rq_retry_overflow$") > 0


@proves("DestinationRule", "spec.trafficPolicy.proxyProtocol.version")
async def test_the_proxy_protocol_header_carries_the_callers_address(mesh):
    own = mesh.pod("client").addresses
    for version, begins in (("V1", tuple(f"PROXY TCP{6 if ':' in each else 4} {each} " for each in own)),
                            ("V2", "\r\n\r\n\0\r\nQUIT\n")):  # fmt: skip
        await mesh.try_out(destination_rule("plain", proxyProtocol={"version": version}))
        answer = await mesh.tell("client", "tcp", host="plain", port=9000, send="hello", half_close=True)
        assert answer["received"].startswith(begins), answer
        assert answer["received"].endswith("hello<end of file seen>")


@proves(
    "DestinationRule",
    "spec.trafficPolicy.outlierDetection.consecutiveGatewayErrors",
    "spec.trafficPolicy.outlierDetection.minHealthPercent",
)
async def test_gateway_errors_eject_a_pod_unless_the_minimum_health_percent_prevents_it(mesh):
    bad = mesh.pods("pool")[0].name
    outlier = {"consecutive5xxErrors": 0, "consecutiveGatewayErrors": 2, "interval": "0.2s", "maxEjectionPercent": 50}
    once = virtual_service("pool", {"retries": {"attempts": 0}, "route": [to("pool")]})
    for least, wanted in ((0, False), (90, True)):
        rule = destination_rule(
            "pool", loadBalancer={"simple": "ROUND_ROBIN"}, outlierDetection={**outlier, "minHealthPercent": least}
        )
        await mesh.try_out(rule, once)
        await tell(mesh.sockets, bad, "script", path="/gate", steps=[{"status": 500}] * 2 + [{"status": 503}] * 2)

        async def ejected():
            await mesh.requests("client", "http://pool/gate", 3, parallel=1)
            return await mesh.stat("client", POOL_STATS + "outlier_detection.ejections_active$")

        await eventually(ejected)
        assert await mesh.received("pool", "/gate") >= 4
        assert (bad in await spread(mesh, "http://pool/fine")) is wanted, least
        await tell(mesh.sockets, bad, "script", path="/gate")
        await mesh.try_out(once)  # the next case starts with all endpoints


@proves(
    "DestinationRule",
    "spec.trafficPolicy.outlierDetection.splitExternalLocalOriginErrors",
    "spec.trafficPolicy.outlierDetection.consecutiveLocalOriginFailures",
)
async def test_a_server_that_cannot_be_reached_is_ejected(mesh):
    outlier = {
        "splitExternalLocalOriginErrors": True,
        "consecutiveLocalOriginFailures": 2,
        "maxEjectionPercent": 100,
        "interval": "0.2s",
    }
    once = virtual_service("plain", {"retries": {"attempts": 0}, "route": [to("plain")]})
    await mesh.try_out(destination_rule("plain", outlierDetection=outlier), once)
    for _ in range(2):  # Envoy's default is 5
        assert (await mesh.get("client", "http://plain:90/"))["status"] == 503
    stat = r"^cluster\.outbound\|90\|\|plain.*outlier_detection\.ejections_active$"
    assert await eventually(lambda: mesh.stat("client", stat)) == 1


@proves(
    "DestinationRule",
    "spec.trafficPolicy.loadBalancer.warmup.duration",
    "spec.trafficPolicy.loadBalancer.warmup.minimumPercent",
    "spec.trafficPolicy.loadBalancer.warmup.aggression",
    "spec.trafficPolicy.loadBalancer.warmupDurationSecs",
)
async def test_with_warmup_a_new_pod_starts_with_a_small_share_unless_minimum_or_aggression_is_high(mesh):
    for warmup, gets_less in (
        ({"warmup": {"duration": "20s"}}, True),
        ({"warmup": {"duration": "20s", "minimumPercent": 100}}, False),
        ({"warmup": {"duration": "20s", "aggression": 1000}}, False),
        ({"warmupDurationSecs": "5s"}, True),
    ):
        await scale(mesh, 2)
        await mesh.try_out(destination_rule("pool", loadBalancer={"simple": "ROUND_ROBIN", **warmup}))
        old = {pod.name for pod in mesh.pods("pool")}
        await asyncio.sleep(6)  # existing pods were new to the changed cluster, too
        await scale(mesh, 3)
        seen = await spread(mesh, count=60)
        new = sum(count for name, count in seen.items() if name not in old)
        assert (new < 14) is gets_less, (warmup, seen)  # not a third
