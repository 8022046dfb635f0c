"""Builds retry policies.

Rule: by default a proxy retries only requests that the server cannot have processed, or whose method is idempotent.
Configured `retries` are applied exactly.

A server may close a keep-alive connection at the moment when a proxy writes a request to it. Envoy cannot know whether
the server has read the request, so only requests with idempotent methods are retried then: by a separate route, placed
before the same route for all other methods. A header `x-envoy-retry-on` set by CEL would have the same effect at about
the same cost, but a route can be read, shown and explained.
"""

from __future__ import annotations

from datetime import timedelta
from functools import lru_cache

from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.route.v3.route_components_pb2 import HeaderMatcher, RetryPolicy, Route
from envoy.extensions.retry.host.previous_hosts.v3.previous_hosts_pb2 import PreviousHostsPredicate
from envoy.extensions.retry.priority.previous_priorities.v3.previous_priorities_config_pb2 import (
    PreviousPrioritiesConfig,
)

from weft.model.virtual_service import Retries
from weft.translate.protos import duration, packed

# The idempotent methods of RFC 9110, 9.2.2. An unknown method may have any effect, so it is not among them.
IDEMPOTENT = "GET|HEAD|OPTIONS|TRACE|PUT|DELETE"
# Failures before the server processed the request: it was never sent, or rejected unread. A response is never retried:
# if each of three calls in a chain retried UNAVAILABLE, as in Istio, one request would become 27 requests to the last
# server.
BY_DEFAULT = "connect-failure,refused-stream,reset-before-request"
# Istio's documented default for `retries` without `retryOn`.
_AS_DOCUMENTED = "connect-failure,refused-stream,unavailable,cancelled"
# How long an idle HTTP/1 connection is kept, to an application and to a server outside the mesh. It must be shorter
# than the server's own idle timeout (gunicorn 2 s, Node.js and uvicorn 5 s; outside, 60 s and more is usual).
IDLE_TO_WORKLOAD = timedelta(seconds=1)
IDLE_TO_OUTSIDE = timedelta(seconds=30)

_UNWRITTEN = Retries(retry_on=BY_DEFAULT)
# A server may close all its idle connections at once; the retries of all affected requests must be within the limit.
_REPLAYS_AT_ONCE = 100
_BUDGET_PERCENT = 20.0


def by_default() -> RetryPolicy:
    """Return the retry policy for routes without configured retries."""
    return policy(_UNWRITTEN)


@lru_cache(maxsize=1024)
def policy(retries: Retries) -> RetryPolicy:
    result = RetryPolicy()
    result.num_retries.value = retries.attempts
    reasons: list[str] = []
    for reason in (retries.retry_on or _AS_DOCUMENTED).split(","):
        if reason.strip().isdigit():
            result.retriable_status_codes.append(int(reason))
        elif reason.strip():
            reasons.append(reason.strip())
    if result.retriable_status_codes and "retriable-status-codes" not in reasons:
        reasons.append("retriable-status-codes")
    result.retry_on = ",".join(reasons)
    if retries.per_try_timeout:
        result.per_try_timeout.CopyFrom(duration(retries.per_try_timeout))
    result.host_selection_retry_max_attempts = 5
    if retries.ignore_previous_hosts:
        predicate = result.retry_host_predicate.add()
        predicate.name = "envoy.retry_host_predicates.previous_hosts"
        predicate.typed_config.CopyFrom(packed(PreviousHostsPredicate()))
    if retries.retry_remote_localities:
        result.retry_priority.name = "envoy.retry_priorities.previous_priorities"
        result.retry_priority.typed_config.CopyFrom(packed(PreviousPrioritiesConfig(update_frequency=2)))
    if retries.backoff:
        result.retry_back_off.base_interval.CopyFrom(duration(retries.backoff))
    return result


def to_workload() -> RetryPolicy:
    result = RetryPolicy(retry_on="reset-before-request")
    result.num_retries.value = 2
    return result


def allow_replays(cluster: Cluster) -> None:
    """Raise a cluster's limit of concurrent retries, for HTTP/1 connections that the server may close at any time:
    those to the proxy's own workload, or to a server without a proxy. No other proxy retries these requests, so
    retries do not multiply."""
    budget = cluster.circuit_breakers.thresholds[0].retry_budget
    budget.budget_percent.value = budget.budget_percent.value or _BUDGET_PERCENT
    budget.min_retry_concurrency.value = max(budget.min_retry_concurrency.value, _REPLAYS_AT_ONCE)


def with_replays(route: Route) -> list[Route]:
    """Return the route twice: for idempotent methods, which are also retried on reset, then for all methods."""
    first = Route()
    first.CopyFrom(route)
    first.match.headers.append(_idempotent())
    first.route.retry_policy.retry_on += ",reset"
    return [first, route]


def _idempotent() -> HeaderMatcher:
    result = HeaderMatcher(name=":method")
    result.string_match.safe_regex.regex = IDEMPOTENT
    return result
