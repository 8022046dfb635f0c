"""Reads the traffic policy of a DestinationRule: load balancing, connection pools, outlier detection and TLS, for a
host, a subset or a port."""

from __future__ import annotations

from datetime import timedelta
from math import isqrt

import msgspec

from weft.api.client_tls import read_client_tls
from weft.api.locality import read_locality
from weft.api.reader import Fields, quoted
from weft.api.syntax import is_host_or_address
from weft.model.destination_rule import (
    ConnectionPool,
    ConsistentHash,
    HashKey,
    Keepalive,
    LoadBalancer,
    OutlierDetection,
    ProxyProtocol,
    RetryBudget,
    SimpleBalancer,
    TrafficPolicy,
    Tunnel,
    Warmup,
)

LARGEST_RING = 1 << 23  # LARGEST_*: Envoy's own limits
LARGEST_TABLE = 5_000_011

_SETTINGS = ("loadBalancer", "connectionPool", "outlierDetection", "tls")
_BALANCERS = {
    **{balancer.value: balancer for balancer in SimpleBalancer},
    "LEAST_CONN": SimpleBalancer.LEAST_REQUEST,  # Istio's older name for LEAST_REQUEST
    "UNSPECIFIED": None,
}


_WITHOUT_WARMUP = (SimpleBalancer.RANDOM, SimpleBalancer.PASSTHROUGH)


def read_policy(holder: Fields) -> TrafficPolicy | None:
    """Read the `trafficPolicy` of a DestinationRule or of a subset; None if the field is not set."""
    policy = holder.fields("trafficPolicy")
    if policy is None:
        return None
    more = ("portLevelSettings", "tunnel", "proxyProtocol", "retryBudget")
    if not any(policy.has(name) for name in (*_SETTINGS, *more)):
        hint = f"set one of {quoted(_SETTINGS)}, or leave `trafficPolicy` out"
        policy.lacks(*_SETTINGS, *more, what="`trafficPolicy` sets nothing", hint=hint)
    ports: dict[int, TrafficPolicy] = {}
    for setting in policy.items("portLevelSettings"):
        port = setting.fields("port", required=True)
        number = port.port("number", required=True) if port else 0
        if number and number in ports:
            setting.error("port", f"port {number} is listed twice")
        ports[number] = _settings(setting)
    return msgspec.structs.replace(
        _settings(policy),
        retry_budget=_retry_budget(policy),
        proxy_protocol=_proxy_protocol(policy),
        tunnel=_tunnel(policy),
        ports=tuple(ports.items()),
    )


def _settings(policy: Fields) -> TrafficPolicy:
    return TrafficPolicy(
        _load_balancer(policy),
        _connection_pool(policy),
        _outlier_detection(policy),
        read_client_tls(policy),
        line=policy.line,
    )


def _load_balancer(policy: Fields) -> LoadBalancer | None:
    fields = policy.fields("loadBalancer")
    if fields is None:
        return None
    fields.one_of("simple", "consistentHash")
    fields.one_of("warmup", "warmupDurationSecs")
    simple = _BALANCERS.get(fields.choice("simple", _BALANCERS))
    hashing, warmup = _consistent_hash(fields), _warmup(fields)
    if warmup is not None and (hashing is not None or simple in _WITHOUT_WARMUP):
        at = "warmup" if fields.has("warmup") else "warmupDurationSecs"
        what = f"`{at}` would have no effect: only ROUND_ROBIN and LEAST_REQUEST support it"
        fields.error(at, what, f"leave `{at}` out, or use ROUND_ROBIN or LEAST_REQUEST")
    return LoadBalancer(simple, hashing, warmup, read_locality(fields))


def _warmup(balancer: Fields) -> Warmup | None:
    short, fields = balancer.duration("warmupDurationSecs"), balancer.fields("warmup")
    if fields is None:
        return Warmup(short) if short is not None else None
    duration = fields.duration("duration", required=True)
    minimum = fields.number("minimumPercent", least=0, most=100)
    aggression = fields.number("aggression", least=1, most=1_000)
    return Warmup(duration, minimum, aggression) if duration is not None else None


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
    attributes: tuple[tuple[str, str], ...] = ()
    if cookie is not None:
        name, cookie_path = cookie.text("name", required=True, most=4_096), cookie.text("path", most=4_096)
        ttl = cookie.duration("ttl", least=timedelta(0))  # zero means a session cookie
        attributes = _cookie_attributes(cookie)
    keys = {"httpHeaderName": HashKey.HEADER, "httpCookie": HashKey.COOKIE, "httpQueryParameterName": HashKey.QUERY}
    if not key or (key == "useSourceIp" and not source) or (key != "useSourceIp" and not name):
        fields.lacks(
            *keys,
            "useSourceIp",
            what="`consistentHash` needs a hash key",
            hint="set `httpHeaderName`, `httpCookie`, `httpQueryParameterName` or `useSourceIp: true`",
        )
    return ConsistentHash(
        keys.get(key, HashKey.SOURCE_IP), name, cookie_path, ttl, attributes, maglev is not None, table_size, ring_size
    )


def _cookie_attributes(cookie: Fields) -> tuple[tuple[str, str], ...]:
    """Read the attributes of a cookie, such as `{name: SameSite, value: Strict}`. Some attributes, such as Secure, have
    no value."""
    found: list[tuple[str, str]] = []
    for item in cookie.items("attributes"):
        name, value = item.text("name", required=True, most=4_096), item.text("value", most=4_096)
        for field, written in (("name", name), ("value", value)):
            if any(sign in written for sign in ";,\r\n\0"):
                item.error(field, f"`{written[:80]}` is not allowed in a cookie")
        if name.lower() in ("path", "max-age"):
            what = f"the cookie's `{name}` is set by its field `{'path' if name.lower() == 'path' else 'ttl'}`"
            item.error("name", what, f"remove `{name}` from `attributes`")
        if name in (other for other, _ in found):
            item.error("name", f"the cookie's attribute `{name[:80]}` is listed twice")
        found.append((name, value))
    return tuple(found)


def _ring_size(fields: Fields) -> int:
    return fields.integer("minimumRingSize", most=LARGEST_RING) or 0


def _table_size(maglev: Fields) -> int:
    size = maglev.integer("tableSize", most=LARGEST_TABLE) or 0
    if size and not _is_prime(size):
        nearest = next(number for number in range(size, LARGEST_TABLE + 1) if _is_prime(number))
        maglev.error(
            "tableSize", f"`tableSize` must be a prime number, not {size}", f"the next prime number is {nearest}"
        )
    return size


def _is_prime(number: int) -> bool:
    return number > 1 and all(number % divisor for divisor in range(2, isqrt(number) + 1))


def _retry_budget(policy: Fields) -> RetryBudget | None:
    fields = policy.fields("retryBudget")
    if fields is None:
        return None
    default = RetryBudget()
    percent = fields.number("percent", least=0, most=100)
    minimum = fields.integer("minRetryConcurrency")
    fields.refused("budgetInterval", "Envoy's retry budget has no interval: it counts active requests", "leave it out")
    return RetryBudget(default.percent if percent is None else percent, default.minimum if minimum is None else minimum)


def _proxy_protocol(policy: Fields) -> ProxyProtocol | None:
    fields = policy.fields("proxyProtocol")
    if fields is None:
        return None
    return ProxyProtocol(fields.choice("version", tuple(ProxyProtocol)) or ProxyProtocol.V1)


def _tunnel(policy: Fields) -> Tunnel | None:
    fields = policy.fields("tunnel")
    if fields is None:
        return None
    what, hint = "a host name or an IP address", "put the port into `targetPort`"
    host = fields.checked("targetHost", is_host_or_address, what, hint, required=True)
    port = fields.port("targetPort", required=True)
    return Tunnel(host, port, by_post=fields.choice("protocol", ("CONNECT", "POST")) == "POST")


def _connection_pool(policy: Fields) -> ConnectionPool | None:
    return read_pool(policy, "connectionPool")


def read_pool(holder: Fields, name: str, *, to_workload: bool = False) -> ConnectionPool | None:
    """Read the connection pool in the field `name` of `holder`; None if the field is not set. `to_workload`: the pool
    is for the connections of a proxy to its own application."""
    fields = holder.fields(name)
    if fields is None:
        return None
    tcp, http = fields.fields("tcp"), fields.fields("http")
    if tcp is None and http is None:
        fields.lacks("tcp", "http", what=f"`{name}` sets nothing", hint="set `tcp` or `http`")
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
            "h2_upgrade": _upgrade(http, to_workload=to_workload),
            "use_client_protocol": http.boolean("useClientProtocol") or False,
            "max_concurrent_streams": http.integer("maxConcurrentStreams"),
        }
        if values["use_client_protocol"] and values["h2_upgrade"] == "UPGRADE":
            http.error("useClientProtocol", "`useClientProtocol` and `h2UpgradePolicy: UPGRADE` cannot be combined")
    return ConnectionPool(**values)  # type: ignore[arg-type]


def _upgrade(http: Fields, *, to_workload: bool) -> str:
    if not to_workload:
        return http.choice("h2UpgradePolicy", ("DEFAULT", "DO_NOT_UPGRADE", "UPGRADE"))
    if http.choice("h2UpgradePolicy", ("DEFAULT", "DO_NOT_UPGRADE"), refused=("UPGRADE",)) == "UPGRADE":
        what = "towards its own workload a proxy uses the declared protocol of the port, and upgrades nothing"
        http.error("h2UpgradePolicy", what, "declare the port HTTP2 or GRPC")
    return ""


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
