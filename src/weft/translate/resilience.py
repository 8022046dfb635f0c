"""Sets defaults that keep failures from spreading: the retry budget of a cluster, HTTP/2 flow control windows, stream
errors and resets that do not close their connection, and keepalive between proxies. The builders of clusters and
listeners call these functions.

Rule: a client or server that reads slowly does not delay others. One connection between proxies carries streams of many
callers, and the unread bytes of a stream also count against the connection's window: a few slow streams would fill it
and block all others. So the connection's window is as large as the windows of all its streams together.

Rule: a caller that resets its requests, or gives up on them, does not end the requests of others. The caller's proxy
forwards each reset on the connection that it shares with other callers, so a limit of resets per connection applies
only where the connection belongs to one client.
"""

from __future__ import annotations

from datetime import timedelta

import msgspec
from envoy.config.cluster.v3.circuit_breaker_pb2 import CircuitBreakers
from envoy.config.core.v3.protocol_pb2 import Http2ProtocolOptions
from google.protobuf.wrappers_pb2 import UInt64Value

from weft.model.destination_rule import RetryBudget
from weft.translate.protos import duration

# A fifth of the active requests, and at least three: enough for a pod that terminates, too few for a retry storm.
DEFAULT_BUDGET = RetryBudget()
# Window of a stream, in bytes. Measured for one download through two proxies on a busy machine of two cores: 60 MB/s
# with 256 KiB, 105 MB/s with 1 MiB, 100 MB/s with Envoy's 16 MiB. A gateway has more clients, which are trusted less,
# so its window is 256 KiB; a download through it had 85 MB/s.
WINDOW = 1 << 20
GATEWAY_WINDOW = 256 << 10
_STREAMS = 1024  # per connection, Envoy's default limit
# Interval and timeout of HTTP/2 keepalive pings; long enough for a proxy on a busy machine.
_ASK_EVERY = timedelta(seconds=30)
_ANSWER_WITHIN = timedelta(seconds=20)
# Frames that wait in Envoy to be sent to another proxy: Envoy closes the connection above these limits (by default
# 10,000 frames and 1,000 resets and pings). A proxy may read resets from many clients before it writes once.
_QUEUED, _QUEUED_RESETS = 20_000, 10_000
# Fields of Http2ProtocolOptions, both UInt64Value.
_STREAM_RESET_BURST, _STREAM_RESET_RATE = 21, 22


class ResetLimit(msgspec.Struct, frozen=True):
    """How many resets Envoy accepts on an HTTP/2 connection before it closes the connection: `burst` at once, then
    `rate` per second. Envoy's default is 1,000 and 33."""

    burst: int
    rate: int


# A connection from another proxy carries the resets of all its callers.
RESETS_OF_PROXIES = ResetLimit((1 << 32) - 1, (1 << 32) - 1)
# The application may multiplex its whole work on one connection: the limit stops only floods.
RESETS_OF_APPLICATION = ResetLimit(10_000, 1_000)
# A browser resets what it no longer shows: a burst at a time. Envoy's other limit, by the share of a connection's
# requests that were reset (`overload.premature_reset_total_stream_count`), is for all listeners of a proxy alike and
# therefore off.
RESETS_OUTSIDE = ResetLimit(250, 33)


def limit_retries(limits: CircuitBreakers.Thresholds, written: RetryBudget | None, most: int | None) -> None:
    """Limit the retries of a cluster: by the retry budget of a rule (`written`); else by its `maxRetries` (`most`; 0
    counts as not set); else by the default budget. Only one of these limits is set, because Envoy ignores a number
    beside a budget."""
    if written is None and most:
        limits.max_retries.value = most
        return
    budget = written or DEFAULT_BUDGET
    limits.retry_budget.budget_percent.value = budget.percent
    limits.retry_budget.min_retry_concurrency.value = budget.minimum


def limit_windows(options: Http2ProtocolOptions, stream: int = WINDOW, connection: int = 0) -> None:
    """Set the HTTP/2 flow control windows of a stream and of a connection, in bytes. By default, the connection's
    window is as large as those of all its streams together."""
    options.initial_stream_window_size.value = stream
    options.initial_connection_window_size.value = connection or stream * _STREAMS


def end_alone(options: Http2ProtocolOptions) -> None:
    """Make an HTTP/2 protocol error close only its stream. By default Envoy closes the whole connection, with the
    streams of other callers."""
    options.override_stream_error_on_invalid_http_message.value = True


def limit_resets(options: Http2ProtocolOptions, limit: ResetLimit) -> None:
    """Limit the resets that are accepted on a connection. Envoy has two fields for this since 1.39, but xds-protos does
    not have them yet. So they are added as serialized bytes, which protobuf keeps as unknown fields."""
    for number, value in ((_STREAM_RESET_BURST, limit.burst), (_STREAM_RESET_RATE, limit.rate)):
        content = UInt64Value(value=value).SerializeToString()
        tag = number << 3 | 2  # wire type 2, a message; the varint of a tag from 128 to 16,383 has two bytes
        options.MergeFromString(bytes((tag & 0x7F | 0x80, tag >> 7, len(content))) + content)


def queue_resets(options: Http2ProtocolOptions) -> None:
    """Raise the number of frames, and of resets among them, that may wait to be sent on a connection before Envoy
    closes it. Use it only for connections to other proxies: the low default protects against an upstream that does not
    read."""
    options.max_outbound_frames.value = _QUEUED
    options.max_outbound_control_frames.value = _QUEUED_RESETS


def notice_silence(options: Http2ProtocolOptions) -> None:
    """Enable HTTP/2 keepalive pings, which detect a peer that has vanished: TCP alone retries for a quarter of an hour,
    while new requests queue. Use it only between proxies: gRPC servers close connections that send pings this often."""
    options.connection_keepalive.interval.CopyFrom(duration(_ASK_EVERY))
    options.connection_keepalive.timeout.CopyFrom(duration(_ANSWER_WITHIN))
