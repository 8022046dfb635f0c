"""A DestinationRule's traffic policy: balancing, pools, ejection and TLS, for a host, a subset or a port."""

from __future__ import annotations

from datetime import timedelta
from math import isqrt

import msgspec

from weft.api.client_tls import read_client_tls
from weft.api.reader import Fields, quoted
from weft.model.destination_rule import (
    ConnectionPool,
    ConsistentHash,
    HashKey,
    Keepalive,
    LoadBalancer,
    OutlierDetection,
    SimpleBalancer,
    TrafficPolicy,
)

LARGEST_RING = 1 << 23  # Envoy's own limits
LARGEST_TABLE = 5_000_011

_SETTINGS = ("loadBalancer", "connectionPool", "outlierDetection", "tls")
_BALANCERS = {
    **{balancer.value: balancer for balancer in SimpleBalancer},
    "LEAST_CONN": SimpleBalancer.LEAST_REQUEST,  # Istio's older name for the same
    "UNSPECIFIED": None,
}


def read_policy(holder: Fields) -> TrafficPolicy | None:
    """The `trafficPolicy` below a rule or subset."""
    policy = holder.fields("trafficPolicy")
    if policy is None:
        return None
    policy.unsupported("tunnel", "proxyProtocol", "retryBudget")
    more = ("portLevelSettings", "tunnel", "proxyProtocol", "retryBudget")
    if not any(policy.has(name) for name in (*_SETTINGS, *more)):
        hint = f"set one of {quoted(_SETTINGS)} or leave it out"
        policy.lacks(*_SETTINGS, *more, what="`trafficPolicy` says nothing", hint=hint)
    ports: dict[int, TrafficPolicy] = {}
    for setting in policy.items("portLevelSettings"):
        port = setting.fields("port", required=True)
        number = port.port("number", required=True) if port else 0
        if number and number in ports:
            setting.error("port", f"port {number} stands twice")
        ports[number] = _settings(setting)
    level = _settings(policy)
    return msgspec.structs.replace(level, ports=tuple(ports.items()))


def _settings(policy: Fields) -> TrafficPolicy:
    return TrafficPolicy(
        _load_balancer(policy),
        _connection_pool(policy),
        _outlier_detection(policy),
        read_client_tls(policy),
    )


def _load_balancer(policy: Fields) -> LoadBalancer | None:
    fields = policy.fields("loadBalancer")
    if fields is None:
        return None
    fields.one_of("simple", "consistentHash")
    fields.one_of("warmup", "warmupDurationSecs")
    fields.unsupported("localityLbSetting")
    written = fields.choice("simple", _BALANCERS)
    warmup = fields.duration("warmupDurationSecs")
    inner = fields.fields("warmup")
    if inner is not None:
        warmup = inner.duration("duration", required=True)
        inner.unsupported("minimumPercent", "aggression")
    return LoadBalancer(_BALANCERS.get(written), _consistent_hash(fields), warmup)


def _consistent_hash(balancer: Fields) -> ConsistentHash | None:
    fields = balancer.fields("consistentHash")
    if fields is None:
        return None
    key = fields.one_of("httpHeaderName", "httpCookie", "useSourceIp", "httpQueryParameterName")
    fields.one_of("ringHash", "maglev")
    ring, maglev = fields.fields("ringHash"), fields.fields("maglev")
    ring_size = _ring_size(fields) or (_ring_size(ring) if ring else 0)
    table_size = _table_size(maglev) if maglev else 0
    header, query = fields.header("httpHeaderName"), fields.text("httpQueryParameterName", most=4_096)
    source, cookie = fields.boolean("useSourceIp"), fields.fields("httpCookie")
    name, cookie_path, ttl = header or query, "", None
    if cookie is not None:
        name, cookie_path = cookie.text("name", required=True, most=4_096), cookie.text("path", most=4_096)
        ttl = cookie.duration("ttl", least=timedelta(0))  # zero: a session cookie
        cookie.unsupported("attributes")
    keys = {"httpHeaderName": HashKey.HEADER, "httpCookie": HashKey.COOKIE, "httpQueryParameterName": HashKey.QUERY}
    if not key or (key == "useSourceIp" and not source) or (key != "useSourceIp" and not name):
        fields.lacks(
            *keys,
            "useSourceIp",
            what="`consistentHash` must say what to hash",
            hint="set `httpHeaderName`, `httpCookie`, `httpQueryParameterName` or `useSourceIp: true`",
        )
    return ConsistentHash(
        keys.get(key, HashKey.SOURCE_IP), name, cookie_path, ttl, maglev is not None, table_size, ring_size
    )


def _ring_size(fields: Fields) -> int:
    return fields.integer("minimumRingSize", most=LARGEST_RING) or 0


def _table_size(maglev: Fields) -> int:
    size = maglev.integer("tableSize", most=LARGEST_TABLE) or 0
    if size and not _is_prime(size):
        nearest = next(number for number in range(size, LARGEST_TABLE + 1) if _is_prime(number))
        maglev.error("tableSize", f"`tableSize` must be a prime, and {size} is none", f"the next one is {nearest}")
    return size


def _is_prime(number: int) -> bool:
    return number > 1 and all(number % divisor for divisor in range(2, isqrt(number) + 1))


def _connection_pool(policy: Fields) -> ConnectionPool | None:
    fields = policy.fields("connectionPool")
    if fields is None:
        return None
    tcp, http = fields.fields("tcp"), fields.fields("http")
    if tcp is None and http is None:
        fields.lacks("tcp", "http", what="`connectionPool` says nothing", hint="set `tcp` or `http`")
    values: dict[str, object] = {}
    if tcp is not None:
        keepalive = tcp.fields("tcpKeepalive")
        values |= {
            "max_connections": tcp.integer("maxConnections"),
            "connect_timeout": tcp.duration("connectTimeout"),
            "keepalive": _keepalive(keepalive) if keepalive else None,
            "max_connection_duration": tcp.duration("maxConnectionDuration"),
            "tcp_idle_timeout": tcp.duration("idleTimeout", least=timedelta(0)),
        }
    if http is not None:
        values |= {
            "max_pending_requests": http.integer("http1MaxPendingRequests"),
            "max_requests": http.integer("http2MaxRequests"),
            "max_requests_per_connection": http.integer("maxRequestsPerConnection"),
            "max_retries": http.integer("maxRetries"),
            "idle_timeout": http.duration("idleTimeout", least=timedelta(0)),
            "h2_upgrade": http.choice("h2UpgradePolicy", ("DEFAULT", "DO_NOT_UPGRADE", "UPGRADE")),
            "use_client_protocol": http.boolean("useClientProtocol") or False,
            "max_concurrent_streams": http.integer("maxConcurrentStreams"),
        }
        if values["use_client_protocol"] and values["h2_upgrade"] == "UPGRADE":
            http.error("useClientProtocol", "`useClientProtocol` and `h2UpgradePolicy: UPGRADE` exclude each other")
    return ConnectionPool(**values)  # type: ignore[arg-type]


def _keepalive(fields: Fields) -> Keepalive:
    return Keepalive(fields.integer("probes") or 0, fields.duration("time"), fields.duration("interval"))


def _outlier_detection(policy: Fields) -> OutlierDetection | None:
    fields = policy.fields("outlierDetection")
    if fields is None:
        return None
    old = fields.integer("consecutiveErrors")
    if old:
        fields.warning("consecutiveErrors", "`consecutiveErrors` is deprecated", "use `consecutive5xxErrors`")
    split = fields.boolean("splitExternalLocalOriginErrors") or False
    local = fields.integer("consecutiveLocalOriginFailures")
    if local and not split:
        fields.lacks(
            "splitExternalLocalOriginErrors",
            at="consecutiveLocalOriginFailures",
            what="`consecutiveLocalOriginFailures` needs `splitExternalLocalOriginErrors: true`",
        )
    gateway = fields.integer("consecutiveGatewayErrors")
    return OutlierDetection(
        consecutive_5xx=fields.integer("consecutive5xxErrors"),
        consecutive_gateway_errors=old if old and gateway is None else gateway,  # as Istio reads the old field
        consecutive_local_origin_failures=local,
        split_local_origin=split,
        interval=fields.duration("interval"),
        base_ejection_time=fields.duration("baseEjectionTime"),
        max_ejection_percent=fields.integer("maxEjectionPercent", most=100),
        min_health_percent=fields.integer("minHealthPercent", most=100),
    )
