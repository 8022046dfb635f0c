from datetime import timedelta

import pytest

from api.reading import istio, told, value
from weft.model.destination_rule import (
    ClientTls,
    ConnectionPool,
    ConsistentHash,
    HashKey,
    Keepalive,
    LoadBalancer,
    OutlierDetection,
    RetryBudget,
    SimpleBalancer,
    TrafficPolicy,
    Tunnel,
    Warmup,
)


def policy(text):
    return value(istio("DestinationRule", f"host: a\ntrafficPolicy: {text}")).policy


def seconds(number):
    return timedelta(seconds=number)


def test_reads_a_tunnel():
    assert policy("{tunnel: {targetHost: a.example.com, targetPort: 443}}").tunnel == Tunnel("a.example.com", 443)
    assert policy("{tunnel: {protocol: POST, targetHost: '2001:db8::1', targetPort: 1}}").tunnel == Tunnel(
        "2001:db8::1", 1, by_post=True
    )


def test_reads_a_retry_budget_with_istios_defaults():
    assert policy("{retryBudget: {percent: 12.5, minRetryConcurrency: 1}}").retry_budget == RetryBudget(12.5, 1)
    assert policy("{retryBudget: {}}").retry_budget == RetryBudget(20, 3)


def test_reads_the_version_of_the_proxy_header():
    assert policy("{proxyProtocol: {version: V2}}").proxy_protocol == "V2"
    assert policy("{proxyProtocol: {}}").proxy_protocol == "V1"


def test_reads_pools_and_ejection():
    assert policy(
        """{connectionPool: {tcp: {maxConnections: 100, connectTimeout: 250ms, idleTimeout: 120s,
        maxConnectionDuration: 600s, tcpKeepalive: {probes: 5, time: 7200s, interval: 75s}},
        http: {http1MaxPendingRequests: 64, http2MaxRequests: 512, idleTimeout: 45s, maxConcurrentStreams: 200,
        maxRequestsPerConnection: 16, maxRetries: 6, h2UpgradePolicy: UPGRADE}},
        outlierDetection: {consecutive5xxErrors: 7, consecutiveGatewayErrors: 3, consecutiveLocalOriginFailures: 4,
        splitExternalLocalOriginErrors: true, interval: 15s, baseEjectionTime: 45s, maxEjectionPercent: 60,
        minHealthPercent: 40}}""".replace("\n", " ")
    ) == TrafficPolicy(
        connection_pool=ConnectionPool(
            100,
            seconds(0.25),
            Keepalive(5, seconds(7200), seconds(75)),
            seconds(600),
            seconds(120),
            64,
            512,
            16,
            6,
            seconds(45),
            "UPGRADE",
            False,
            200,
        ),
        outlier_detection=OutlierDetection(7, 3, 4, True, seconds(15), seconds(45), 60, 40),
        line=6,
    )


@pytest.mark.parametrize(
    ("text", "balancer"),
    [
        ("{simple: RANDOM}", LoadBalancer(SimpleBalancer.RANDOM)),
        ("{simple: LEAST_CONN}", LoadBalancer(SimpleBalancer.LEAST_REQUEST)),
        ("{simple: UNSPECIFIED}", LoadBalancer()),
        (
            "{simple: ROUND_ROBIN, warmup: {duration: 60s}}",
            LoadBalancer(SimpleBalancer.ROUND_ROBIN, None, Warmup(seconds(60))),
        ),
        (
            "{simple: ROUND_ROBIN, warmupDurationSecs: 30s}",
            LoadBalancer(SimpleBalancer.ROUND_ROBIN, None, Warmup(seconds(30))),
        ),
        (
            "{warmup: {duration: 60s, minimumPercent: 5, aggression: 2.5}}",
            LoadBalancer(warmup=Warmup(seconds(60), 5, 2.5)),
        ),
        (
            "{consistentHash: {httpCookie: {name: who, attributes: [{name: SameSite, value: Lax}, {name: Secure}]}}}",
            LoadBalancer(
                None,
                ConsistentHash(HashKey.COOKIE, "who", cookie_attributes=(("SameSite", "Lax"), ("Secure", ""))),
            ),
        ),
        (
            "{consistentHash: {httpHeaderName: x-user, minimumRingSize: 4096}}",
            LoadBalancer(None, ConsistentHash(HashKey.HEADER, "x-user", minimum_ring_size=4096)),
        ),
        (
            "{consistentHash: {httpCookie: {name: s, path: /c, ttl: 0s}}}",
            LoadBalancer(None, ConsistentHash(HashKey.COOKIE, "s", "/c", seconds(0))),
        ),
        (
            "{consistentHash: {useSourceIp: true, ringHash: {minimumRingSize: 2048}}}",
            LoadBalancer(None, ConsistentHash(HashKey.SOURCE_IP, minimum_ring_size=2048)),
        ),
        (
            "{consistentHash: {httpQueryParameterName: u, maglev: {tableSize: 251}}}",
            LoadBalancer(None, ConsistentHash(HashKey.QUERY, "u", maglev=True, table_size=251)),
        ),
    ],
)
def test_reads_balancers(text, balancer):
    assert policy(f"{{loadBalancer: {text}}}").load_balancer == balancer


def test_a_port_has_its_own_policy():
    found = policy(
        "{loadBalancer: {simple: RANDOM}, portLevelSettings: [\n    {port: {number: 90}, tls: {mode: DISABLE}, "
        "loadBalancer: {simple: ROUND_ROBIN}}]}"
    )
    at_port = TrafficPolicy(LoadBalancer(SimpleBalancer.ROUND_ROBIN), tls=ClientTls(), line=found.line + 1)
    assert found.ports == ((90, at_port),)


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        (
            "{}",
            [
                "6 `trafficPolicy` sets nothing (set one of `loadBalancer`, `connectionPool`, "
                "`outlierDetection`, `tls`, "
                "or leave `trafficPolicy` out)"
            ],
        ),
        (
            "{loadBalancer: {consistentHash: {useSourceIp: true, maglev: {tableSize: 1024}}}}",
            ["6 `tableSize` must be a prime number, not 1024 (the next prime number is 1031)"],
        ),
        (
            "{loadBalancer: {consistentHash: {useSourceIp: true, maglev: {tableSize: 5000012}}}}",
            ["6 `tableSize` must be between 0 and 5000011, not 5000012"],
        ),
        (
            "{loadBalancer: {consistentHash: {useSourceIp: true, ringHash: {minimumRingSize: 8388609}}}}",
            ["6 `minimumRingSize` must be between 0 and 8388608, not 8388609"],
        ),
        ("{connectionPool: {}}", ["6 `connectionPool` sets nothing (set `tcp` or `http`)"]),
        (
            "{outlierDetection: {consecutiveLocalOriginFailures: 3}}",
            ["6 `consecutiveLocalOriginFailures` needs `splitExternalLocalOriginErrors: true`"],
        ),
        (
            "{loadBalancer: {consistentHash: {}}}",
            [
                "6 `consistentHash` needs a hash key "
                "(set `httpHeaderName`, `httpCookie`, `httpQueryParameterName` or `useSourceIp: true`)"
            ],
        ),
        (
            "{loadBalancer: {simple: RANDOM, consistentHash: {useSourceIp: true}}}",
            ["6 only one of `simple`, `consistentHash` may be set"],
        ),
        (
            "{loadBalancer: {simple: RANDOM, warmup: {duration: 60s}}}",
            [
                "6 `warmup` would have no effect: only ROUND_ROBIN and LEAST_REQUEST support it "
                "(leave `warmup` out, or use ROUND_ROBIN or LEAST_REQUEST)"
            ],
        ),
        (
            "{loadBalancer: {consistentHash: {httpCookie: {name: a, attributes: [{name: Path, value: /}]}}}}",
            ["6 the cookie's `Path` is set by its field `path` (remove `Path` from `attributes`)"],
        ),
        (
            "{loadBalancer: {consistentHash: {httpCookie: {name: a, attributes: [{name: Secure}, {name: Secure}]}}}}",
            ["6 the cookie's attribute `Secure` is listed twice"],
        ),
        (
            "{tunnel: {targetHost: 'a:80', targetPort: 80}}",
            ["6 `a:80` is not a host name or an IP address (put the port into `targetPort`)"],
        ),
        (
            "{retryBudget: {percent: 10, budgetInterval: 1s}}",
            ["6 Envoy's retry budget has no interval: it counts active requests (leave it out)"],
        ),
        ("{portLevelSettings: [{port: {number: 80}}, {port: {number: 80}}]}", ["6 port 80 is listed twice"]),
    ],
)
def test_reports_what_is_wrong(text, problems):
    assert told(istio("DestinationRule", f"host: a\ntrafficPolicy: {text}")) == problems
