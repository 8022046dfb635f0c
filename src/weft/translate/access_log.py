"""The access log, where the mesh wants one. None by default: a line per request costs, and must be asked for.

What a proxy answers by itself is counted always, by a logger that writes nothing: no upstream's statistics know of it.

/dev/stdout and /dev/stderr are Envoy's own streams and not files: what they point to was opened by somebody else, and a
proxy with a user of its own may not open it again.
"""

from __future__ import annotations

import json
from functools import lru_cache

from envoy.config.accesslog.v3.accesslog_pb2 import (
    AccessLog,
    AccessLogFilter,
    AndFilter,
    ExtensionFilter,
    MetadataFilter,
    OrFilter,
    ResponseFlagFilter,
)
from envoy.extensions.access_loggers.file.v3.file_pb2 import FileAccessLog
from envoy.extensions.access_loggers.filters.cel.v3.cel_pb2 import ExpressionFilter
from envoy.extensions.access_loggers.stream.v3.stream_pb2 import StderrAccessLog, StdoutAccessLog
from envoy.extensions.formatter.req_without_query.v3.req_without_query_pb2 import ReqWithoutQuery
from xds.type.v3.typed_struct_pb2 import TypedStruct

from weft.model.access_log import Encoding, FileLog, Reporter
from weft.model.settings import Settings
from weft.translate.authorization import (
    ASKED,
    AUDITED,
    DRY_RUN_ALLOW,
    DRY_RUN_CUSTOM,
    DRY_RUN_DENY,
    HTTP_FILTER,
    NETWORK_FILTER,
)
from weft.translate.filters import ANSWERED, MARKS
from weft.translate.protos import packed

# The counter's name and tags; weft's own view of traffic reads it, and so may a Prometheus.
_COUNTER = {
    "stats_scope": {"prefix": "weft"},
    "counters": [
        {
            "value_fixed": "1",  # as Envoy itself writes a 64-bit number: its dump then says what was sent
            "stat": {
                "name": "answered_by_proxy",
                "tags": [
                    # Known before anybody is called, also which of several by weight; empty where there is none.
                    {"name": "cluster", "value_format": "%UPSTREAM_CLUSTER_RAW%"},
                    {"name": "virtual_host", "value_format": "%CEL(xds.virtual_host_name)%"},
                    {"name": "response_code", "value_format": "%RESPONSE_CODE%"},
                ],
            },
        }
    ],
}
# An injected fault, no route, no cluster. All other failures are the router's, which counts them for the upstream.
_FLAGS = ("FI", "NR", "NC")

# Istio's fields first and in Istio's order, so that whoever reads Istio's lines reads these; weft's own follow by name.
_TEXT = (
    '[%START_TIME%] "%REQ(:METHOD)% %REQ(X-ENVOY-ORIGINAL-PATH?:PATH)% %PROTOCOL%" %RESPONSE_CODE% %RESPONSE_FLAGS% '
    '%RESPONSE_CODE_DETAILS% %CONNECTION_TERMINATION_DETAILS% "%UPSTREAM_TRANSPORT_FAILURE_REASON%" %BYTES_RECEIVED% '
    '%BYTES_SENT% %DURATION% %RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)% "%REQ(X-FORWARDED-FOR)%" "%REQ(USER-AGENT)%" '
    '"%REQ(X-REQUEST-ID)%" "%REQ(:AUTHORITY)%" "%UPSTREAM_HOST%" %UPSTREAM_CLUSTER_RAW% %UPSTREAM_LOCAL_ADDRESS% '
    "%DOWNSTREAM_LOCAL_ADDRESS% %DOWNSTREAM_REMOTE_ADDRESS% %REQUESTED_SERVER_NAME% %ROUTE_NAME%"
)
_JSON = {
    "start_time": "%START_TIME%",
    "method": "%REQ(:METHOD)%",
    "path": "%REQ(X-ENVOY-ORIGINAL-PATH?:PATH)%",
    "protocol": "%PROTOCOL%",
    "response_code": "%RESPONSE_CODE%",
    "response_flags": "%RESPONSE_FLAGS%",
    "response_code_details": "%RESPONSE_CODE_DETAILS%",
    "connection_termination_details": "%CONNECTION_TERMINATION_DETAILS%",
    "upstream_transport_failure_reason": "%UPSTREAM_TRANSPORT_FAILURE_REASON%",
    "bytes_received": "%BYTES_RECEIVED%",
    "bytes_sent": "%BYTES_SENT%",
    "duration": "%DURATION%",
    "upstream_service_time": "%RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)%",
    "x_forwarded_for": "%REQ(X-FORWARDED-FOR)%",
    "user_agent": "%REQ(USER-AGENT)%",
    "request_id": "%REQ(X-REQUEST-ID)%",
    "authority": "%REQ(:AUTHORITY)%",
    "upstream_host": "%UPSTREAM_HOST%",
    "upstream_cluster": "%UPSTREAM_CLUSTER_RAW%",
    "upstream_local_address": "%UPSTREAM_LOCAL_ADDRESS%",
    "downstream_local_address": "%DOWNSTREAM_LOCAL_ADDRESS%",
    "downstream_remote_address": "%DOWNSTREAM_REMOTE_ADDRESS%",
    "requested_server_name": "%REQUESTED_SERVER_NAME%",
    "route_name": "%ROUTE_NAME%",
}
_OURS = {
    "downstream_peer": "%DOWNSTREAM_PEER_URI_SAN%",
    "downstream_peer_cert_start": "%DOWNSTREAM_PEER_CERT_V_START%",
    "downstream_transport_failure_reason": "%DOWNSTREAM_TRANSPORT_FAILURE_REASON%",
    "upstream_peer": "%UPSTREAM_PEER_URI_SAN%",
}
# Whose other end is the application itself, and proves nothing.
_NEVER = {Reporter.CLIENT: "downstream_", Reporter.SERVER: "upstream_"}
# What policies said, by the prefixes and keys under which Envoy's filter keeps it. On TCP a policy that lets a
# connection in leaves no trace, and one that does not stands among the termination details.
_RESULT, _POLICY = "shadow_engine_result", "shadow_effective_policy_id"
_OF_POLICIES = {
    "policy": ("", "enforced_effective_policy_id"),
    "asked_policy": (ASKED, _POLICY),
    "dry_run_allow": (DRY_RUN_ALLOW, _RESULT),
    "dry_run_allow_policy": (DRY_RUN_ALLOW, _POLICY),
    "dry_run_deny": (DRY_RUN_DENY, _RESULT),
    "dry_run_deny_policy": (DRY_RUN_DENY, _POLICY),
    "dry_run_custom_policy": (DRY_RUN_CUSTOM, _POLICY),
    "audit_policy": (AUDITED, _POLICY),
}

# A connection that failed before its handshake was done. One that breaks off later is the system's failure, not TLS's;
# and of plaintext that is welcome, the TLS inspector also notes why it is no TLS, without the colon.
_NO_HANDSHAKE = (
    "connection.transport_failure_reason.startsWith('TLS_error:|') && "
    "!connection.transport_failure_reason.contains('system library')"
)
_HANDSHAKE = f"!has(connection.transport_failure_reason) || !({_NO_HANDSHAKE})"
_WITHOUT_QUERY = "REQ_WITHOUT_QUERY"


@lru_cache(maxsize=64)
def access_logs(settings: Settings, noted: frozenset[str] = frozenset()) -> tuple[AccessLog, ...]:
    """A line for each request. `noted`: what its guards may leave in the metadata, see `authorization.noted`."""
    return tuple(_written(log, _ours(settings, HTTP_FILTER, noted, log)) for log in settings.logs)


@lru_cache(maxsize=64)
def connection_logs(settings: Settings, noted: frozenset[str] = frozenset()) -> tuple[AccessLog, ...]:
    """A line for each connection that carries anything but HTTP. Those that the listener tells of are left to it."""
    told = settings.reporter is Reporter.SERVER and settings.listener_logs
    only = (_by_expression(_HANDSHAKE),) if told else ()
    return tuple(_written(log, _ours(settings, NETWORK_FILTER, noted, log), *only) for log in settings.logs)


@lru_cache(maxsize=64)
def listener_logs(settings: Settings) -> tuple[AccessLog, ...]:
    """A line for each connection that ended before any filter saw it: nothing is there for what it wants (NR), such as
    for plaintext where only TLS is welcome, or it could not prove who it is."""
    if not settings.listener_logs:
        return ()
    refused = AccessLogFilter(response_flag_filter=ResponseFlagFilter(flags=("NR",)))
    if settings.reporter is Reporter.SERVER:
        refused = AccessLogFilter(or_filter=OrFilter(filters=[refused, _by_expression(_NO_HANDSHAKE)]))
    return tuple(_written(log, _ours(settings, NETWORK_FILTER, frozenset(), log), refused) for log in settings.logs)


def _written(log: FileLog, ours: dict[str, str], *only: AccessLogFilter) -> AccessLog:
    logger, name = _logger(log.path)
    form = logger.log_format
    if log.encoding is Encoding.JSON:
        form.json_format.update(json.loads(log.format) if log.format else _JSON | ours)
    else:
        by_name = " ".join(f'{key}="{value}"' for key, value in ours.items())
        form.text_format_source.inline_string = log.format or f"{_TEXT} {by_name}\n"
    form.omit_empty_values = log.omit_empty
    if _WITHOUT_QUERY in log.format:
        form.formatters.add(name="envoy.formatter.req_without_query", typed_config=packed(ReqWithoutQuery()))
    result = AccessLog(name=name, typed_config=packed(logger))
    filters = [*only, *([_by_expression(log.filter)] if log.filter else [])]
    if len(filters) == 1:
        result.filter.CopyFrom(filters[0])
    elif filters:
        result.filter.and_filter.CopyFrom(AndFilter(filters=filters))
    return result


def _ours(settings: Settings, policies: str, noted: frozenset[str], log: FileLog) -> dict[str, str]:
    """In text only what this proxy can have something to say of; JSON has the same names everywhere."""
    more = sorted(prefix for prefix in noted if prefix.startswith(ASKED) and prefix != ASKED)
    found = {**_OF_POLICIES, **{f"asked_policy_{number}": (each, _POLICY) for number, each in enumerate(more, start=2)}}
    said = {
        name: f"%DYNAMIC_METADATA({policies}:{prefix}{key})%"
        for name, (prefix, key) in found.items()
        if prefix in noted or log.encoding is Encoding.JSON
    }
    never = _NEVER.get(settings.reporter) if log.encoding is Encoding.TEXT else None
    return {name: command for name, command in _OURS.items() if not (never and name.startswith(never))} | said


def _by_expression(expression: str) -> AccessLogFilter:
    extension = ExtensionFilter(
        name="envoy.access_loggers.extension_filters.cel",
        typed_config=packed(ExpressionFilter(expression=expression)),
    )
    return AccessLogFilter(extension_filter=extension)


@lru_cache(maxsize=1)
def own_answers() -> AccessLog:
    """Counts the requests that nobody upstream has seen. Of any other it looks at the flags and at one key of its
    metadata, and formats nothing."""
    marked = MetadataFilter()
    marked.matcher.filter = MARKS
    marked.matcher.path.add().key = ANSWERED
    marked.matcher.value.present_match = True
    marked.match_if_key_not_found.value = False
    flagged = ResponseFlagFilter(flags=_FLAGS)
    either = OrFilter(filters=[AccessLogFilter(response_flag_filter=flagged), AccessLogFilter(metadata_filter=marked)])
    # As JSON, because the generated messages do not know `stats_scope` yet, and Envoy warns of its predecessor.
    config = TypedStruct(type_url="type.googleapis.com/envoy.extensions.access_loggers.stats.v3.Config")
    config.value.update(_COUNTER)
    result = AccessLog(name="envoy.access_loggers.stats", typed_config=packed(config))
    result.filter.or_filter.CopyFrom(either)
    return result


def _logger(path: str) -> tuple[FileAccessLog | StdoutAccessLog | StderrAccessLog, str]:
    match path:
        case "/dev/stdout":
            return StdoutAccessLog(), "envoy.access_loggers.stdout"
        case "/dev/stderr":
            return StderrAccessLog(), "envoy.access_loggers.stderr"
    return FileAccessLog(path=path), "envoy.access_loggers.file"
