"""Describe in short phrases what a route does to a request, and the settings of a DestinationRule with their values.

Rule: only configured values are described. Defaults are many, and the same everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from weft.model.destination_rule import (
    ConnectionPool,
    DestinationRule,
    LoadBalancer,
    OutlierDetection,
    TrafficPolicy,
)
from weft.model.virtual_service import Destination, Fault, HttpRoute, Retries, Rewrite


def of_route(route: HttpRoute) -> tuple[str, ...]:
    """Describe what a route does to a request: `5 s delay for 100 % of requests`, `timeout 3 s`, `2 retries on 503`."""
    return tuple(_of_route(route))


def of_rule(rule: DestinationRule) -> tuple[str, ...]:
    """Describe the settings of a DestinationRule, one phrase each. A setting of only one subset or port names it."""
    return tuple(dict.fromkeys(_of_rule(rule)))


def _of_route(route: HttpRoute) -> Iterator[str]:
    if route.fault is not None:
        yield from _fault(route.fault)
    if route.redirect is not None or route.direct_response is not None:
        return  # the other settings apply only to requests that are forwarded
    if route.rewrite is not None:
        yield from _rewrite(route.rewrite)
    if route.timeout is not None:
        yield f"timeout {span(route.timeout)}" if route.timeout else "no timeout"
    if route.retries is not None:
        yield _retries(route.retries)
    for mirror in route.mirrors:
        yield f"mirrored to {target(mirror.destination)} for {mirror.percentage:g} % of requests"


def _fault(fault: Fault) -> Iterator[str]:
    if fault.delay is not None:
        yield f"{span(fault.delay.fixed)} delay for {fault.delay.percentage:g} % of requests"
    if fault.abort is not None:
        status = str(fault.abort.http_status) if fault.abort.http_status else f"gRPC {fault.abort.grpc_status}"
        yield f"aborted with {status} for {fault.abort.percentage:g} % of requests"


def _rewrite(rewrite: Rewrite) -> Iterator[str]:
    if rewrite.regex_match:
        yield f"{rewrite.regex_match} in the path becomes {rewrite.regex_rewrite}"
    elif rewrite.uri or rewrite.prefix:
        yield f"the matched part of the path becomes {rewrite.uri or rewrite.prefix}"
    if rewrite.authority:
        yield f"the host becomes {rewrite.authority}"


def _retries(retries: Retries) -> str:
    if retries.attempts < 1:
        return "no retries"
    count = "1 retry" if retries.attempts == 1 else f"{retries.attempts} retries"
    reasons = f" on {', '.join(part.strip() for part in retries.retry_on.split(','))}" if retries.retry_on else ""
    each = f", each within {span(retries.per_try_timeout)}" if retries.per_try_timeout else ""
    return f"{count}{reasons}{each}"


def target(destination: Destination) -> str:
    port = f":{destination.port}" if destination.port else ""
    return f"{destination.host}{port}{f' subset {destination.subset}' if destination.subset else ''}"


def _of_rule(rule: DestinationRule) -> Iterator[str]:
    for whose, policy in (("", rule.policy), *((f"subset {each.name}", each.policy) for each in rule.subsets)):
        if policy is None:
            continue
        for port, level in ((0, policy), *policy.ports):
            place = " ".join(part for part in (whose, f"port {port}" if port else "") if part)
            yield from (f"{place}: {words}" if place else words for words in _of_level(level))


def _of_level(level: TrafficPolicy) -> Iterator[str]:
    if level.tls is not None:
        yield f"TLS {level.tls.mode}"
    if level.load_balancer is not None:
        yield from _balancer(level.load_balancer)
    if level.connection_pool is not None:
        yield from _pool(level.connection_pool)
    if level.outlier_detection is not None:
        yield _outliers(level.outlier_detection)
    if level.retry_budget is not None:
        budget = level.retry_budget
        yield f"retries at most {budget.percent:g} % of active requests (always at least {budget.minimum})"
    if level.proxy_protocol is not None:
        yield f"PROXY header {level.proxy_protocol}"
    if level.tunnel is not None:
        yield f"tunnel to {level.tunnel.host}:{level.tunnel.port} by {'POST' if level.tunnel.by_post else 'CONNECT'}"


def _balancer(balancer: LoadBalancer) -> Iterator[str]:
    if (hashing := balancer.consistent_hash) is not None:
        name = f" {hashing.name}" if hashing.name else ""
        yield f"load balancer by hash of {hashing.key}{name}"
    elif balancer.simple is not None:
        yield f"load balancer {balancer.simple}"
    if balancer.warmup is not None:
        yield f"warmup {span(balancer.warmup.duration)}"
    if (near := balancer.locality) is not None:
        if not near.enabled:
            yield "locality off"
        for word, written in (
            ("shares", near.distribute),
            ("failover", near.failover),
            ("priority by labels", near.failover_priority),
        ):
            if near.enabled and written:
                yield f"locality {word}"


def _pool(pool: ConnectionPool) -> Iterator[str]:
    for number, words in (
        (pool.max_connections, "connections"),
        (pool.max_pending_requests, "pending requests"),
        (pool.max_requests, "concurrent requests"),
        (pool.max_requests_per_connection, "requests per connection"),
        (pool.max_retries, "concurrent retries"),
        (pool.max_concurrent_streams, "streams per connection"),
    ):
        if number is not None:
            yield f"at most {number} {words[:-1] if number == 1 and words == 'connections' else words}"
    for duration, words in (
        (pool.connect_timeout, "connect timeout"),
        (pool.max_connection_duration, "connections are closed after"),
        (pool.tcp_idle_timeout, "idle TCP connections are closed after"),
        (pool.idle_timeout, "idle connections are closed after"),
    ):
        if duration is not None:
            yield f"{words} {span(duration)}"


def _outliers(outliers: OutlierDetection) -> str:
    """Describe outlier detection in one phrase, since its settings mean nothing separately."""
    causes = [
        f"{number} {words}"
        for number, words in (
            (outliers.consecutive_5xx, "5xx responses"),
            (outliers.consecutive_gateway_errors, "gateway errors"),
            (outliers.consecutive_local_origin_failures, "connection failures"),
        )
        if number
    ]
    phrase = f"a pod is ejected after {' or '.join(causes)} in a row" if causes else "pods that fail are ejected"
    phrase += f" for {span(outliers.base_ejection_time)}" if outliers.base_ejection_time is not None else ""
    if outliers.interval is not None:
        phrase += f", checked every {span(outliers.interval)}"
    if outliers.max_ejection_percent is not None:
        phrase += f", at most {outliers.max_ejection_percent} % of them"
    return phrase


def span(duration: timedelta) -> str:
    seconds = duration.total_seconds()
    return f"{seconds:g} s" if seconds >= 1 or not seconds else f"{1000 * seconds:g} ms"
