"""What holds by itself so that trouble does not grow: how many retries a cluster may have under way, how much of an
HTTP/2 stream is taken before somebody reads it, what a message that cannot be read takes along, and when a proxy that
says nothing is given up. Pure functions that the builders of clusters and listeners call.

Rule: nobody who reads slowly holds up another. Proxies carry many callers' streams by one connection, and what was
taken of a stream that nobody reads counts against its connection, too: where a few such streams fill that, nothing else
passes. So a connection takes as much as all of its streams may.
"""

from __future__ import annotations

from datetime import timedelta

from envoy.config.cluster.v3.circuit_breaker_pb2 import CircuitBreakers
from envoy.config.core.v3.protocol_pb2 import Http2ProtocolOptions

from weft.model.destination_rule import RetryBudget
from weft.translate.protos import duration

# A fifth of what is under way, and three in any case: enough for a pod that ends, too little for a storm.
DEFAULT_BUDGET = RetryBudget()
# Bytes of a stream. One download through two proxies on a busy machine of two cores: 60 MB/s with 256 KiB, 105 with
# 1 MiB, 100 with Envoy's 16 MiB. At a gateway readers are more, and trusted less: 256 KiB, which carries 85 MB/s there.
WINDOW = 1 << 20
GATEWAY_WINDOW = 256 << 10
_STREAMS = 1024  # that a connection has at most, by Envoy's default
# How often another proxy is asked whether it is there, and how long it has to say so, however busy its machine is.
_ASK_EVERY = timedelta(seconds=30)
_ANSWER_WITHIN = timedelta(seconds=20)


def limit_retries(limits: CircuitBreakers.Thresholds, written: RetryBudget | None, most: int | None) -> None:
    """By the budget that a rule has; else by the number that it has (`maxRetries`, 0 is none); else by the default
    budget. Envoy looks at no number beside a budget."""
    if written is None and most:
        limits.max_retries.value = most
        return
    budget = written or DEFAULT_BUDGET
    limits.retry_budget.budget_percent.value = budget.percent
    limits.retry_budget.min_retry_concurrency.value = budget.minimum


def limit_windows(options: Http2ProtocolOptions, stream: int = WINDOW, connection: int = 0) -> None:
    """By default the connection's is that of all its streams."""
    options.initial_stream_window_size.value = stream
    options.initial_connection_window_size.value = connection or stream * _STREAMS


def end_alone(options: Http2ProtocolOptions) -> None:
    """What HTTP/2 forbids ends its stream. By default Envoy ends the connection, and with it what others have on it."""
    options.override_stream_error_on_invalid_http_message.value = True


def notice_silence(options: Http2ProtocolOptions) -> None:
    """Who vanished without a word is noticed: TCP alone goes on for a quarter of an hour, and new requests join those
    that wait. For connections between proxies: gRPC's servers hang up on who asks so often."""
    options.connection_keepalive.interval.CopyFrom(duration(_ASK_EVERY))
    options.connection_keepalive.timeout.CopyFrom(duration(_ANSWER_WITHIN))
