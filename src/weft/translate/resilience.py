"""Defaults that keep failures from spreading: the retry budget of a cluster, the HTTP/2 flow control windows, stream
errors that do not end their connection, and keepalive between proxies. Pure functions that the builders of clusters and
listeners call.

Rule: a slow reader does not delay others. Proxies carry streams of many callers in one connection, and unread bytes of
a stream also count against the connection's window: a few such streams would fill it, and block the others. So the
connection's window is as large as those of all its streams together.
"""

from __future__ import annotations

from datetime import timedelta

from envoy.config.cluster.v3.circuit_breaker_pb2 import CircuitBreakers
from envoy.config.core.v3.protocol_pb2 import Http2ProtocolOptions

from weft.model.destination_rule import RetryBudget
from weft.translate.protos import duration

# A fifth of the active requests, and at least three: enough for a pod that ends, too little for a retry storm.
DEFAULT_BUDGET = RetryBudget()
# Bytes of a stream. One download through two proxies on a busy machine of two cores: 60 MB/s with 256 KiB, 105 with
# 1 MiB, 100 with Envoy's 16 MiB. At a gateway there are more readers, trusted less: 256 KiB, with 85 MB/s there.
WINDOW = 1 << 20
GATEWAY_WINDOW = 256 << 10
_STREAMS = 1024  # per connection, Envoy's default limit
# Interval and timeout of HTTP/2 keepalive pings; long enough for a proxy on a busy machine.
_ASK_EVERY = timedelta(seconds=30)
_ANSWER_WITHIN = timedelta(seconds=20)


def limit_retries(limits: CircuitBreakers.Thresholds, written: RetryBudget | None, most: int | None) -> None:
    """Applies the retry budget of a rule; else its `maxRetries` (0 counts as not set); else the default budget. Envoy
    ignores a number beside a budget."""
    if written is None and most:
        limits.max_retries.value = most
        return
    budget = written or DEFAULT_BUDGET
    limits.retry_budget.budget_percent.value = budget.percent
    limits.retry_budget.min_retry_concurrency.value = budget.minimum


def limit_windows(options: Http2ProtocolOptions, stream: int = WINDOW, connection: int = 0) -> None:
    """By default, the connection's window is that of all its streams together."""
    options.initial_stream_window_size.value = stream
    options.initial_connection_window_size.value = connection or stream * _STREAMS


def end_alone(options: Http2ProtocolOptions) -> None:
    """A protocol error of HTTP/2 ends its stream. By default Envoy closes the connection, with the streams of
    others."""
    options.override_stream_error_on_invalid_http_message.value = True


def notice_silence(options: Http2ProtocolOptions) -> None:
    """Detects a peer that vanished: TCP alone retries for a quarter of an hour, while new requests queue. Only between
    proxies: gRPC servers close connections with such frequent pings."""
    options.connection_keepalive.interval.CopyFrom(duration(_ASK_EVERY))
    options.connection_keepalive.timeout.CopyFrom(duration(_ANSWER_WITHIN))
