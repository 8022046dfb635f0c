"""What is tried again, and how often.

Rule: a proxy repeats by itself only what cannot have been acted on, or may be acted on twice by what HTTP says of its
method. `retries` that somebody wrote are taken to the letter.

A keep-alive connection can be closed by its server in the moment in which a request is written to it. Envoy cannot tell
whether that server has read anything, so only methods that may be repeated are replayed: by a route of their own,
before the same route for all others. A header `x-envoy-retry-on` made by CEL does the same, at no clearly other cost; a
route can be read, shown and explained.
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

# Idempotent by RFC 9110, 9.2.2. A method that is not known may do anything.
IDEMPOTENT = "GET|HEAD|OPTIONS|TRACE|PUT|DELETE"
# What surely has not been acted on: it never left, or came back unread. An answer is never a reason: where each of
# three calls in a row repeats what came back UNAVAILABLE, as in Istio, one request is 27 at the end.
BY_DEFAULT = "connect-failure,refused-stream,reset-before-request"
# What Istio's reference says of `retries` without `retryOn`.
_AS_DOCUMENTED = "connect-failure,refused-stream,unavailable,cancelled"
# How long a connection without a request is kept to an application, and to somebody outside the mesh, by HTTP/1: less
# than servers keep theirs (gunicorn 2 s, Node.js and uvicorn 5 s; outside 60 s and more is usual).
IDLE_TO_WORKLOAD = timedelta(seconds=1)
IDLE_TO_OUTSIDE = timedelta(seconds=30)

_UNWRITTEN = Retries(retry_on=BY_DEFAULT)
# A server may close all its idle connections in one moment; who met that must not be turned away for not being alone.
_REPLAYS_AT_ONCE = 100
_BUDGET_PERCENT = 20.0


def by_default() -> RetryPolicy:
    """Where nobody has written anything."""
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
    """Where connections are HTTP/1's and the other side may have closed them: to one's own workload, or to somebody
    without a proxy. What is replayed there is not tried again by anybody else, so nothing multiplies."""
    budget = cluster.circuit_breakers.thresholds[0].retry_budget
    budget.budget_percent.value = budget.budget_percent.value or _BUDGET_PERCENT
    budget.min_retry_concurrency.value = max(budget.min_retry_concurrency.value, _REPLAYS_AT_ONCE)


def with_replays(route: Route) -> list[Route]:
    """The route twice: for methods that may be repeated, whose resets are replayed, then for all others."""
    first = Route()
    first.CopyFrom(route)
    first.match.headers.append(_idempotent())
    first.route.retry_policy.retry_on += ",reset"
    return [first, route]


def _idempotent() -> HeaderMatcher:
    result = HeaderMatcher(name=":method")
    result.string_match.safe_regex.regex = IDEMPOTENT
    return result
