"""Translates the access log settings of a proxy to Envoy's access loggers. By default there is no access log: a line
per request has a cost, so logs must be configured.

Responses that a proxy sends itself, without an upstream, are always counted, by a logger that writes no lines: no
upstream's statistics include them.

The paths /dev/stdout and /dev/stderr become Envoy's stdout and stderr loggers instead of file loggers: another process
opened the files behind them, and a proxy that runs as another user may not open them again.
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

# Name and tags of the counter of responses that a proxy sends itself. weft's own traffic commands read it, and
# Prometheus may.
_COUNTER = {
    "stats_scope": {"prefix": "weft"},
    "counters": [
        {
            # Text, as Envoy's JSON has 64-bit numbers, so that Envoy's config dump equals what was sent.
            "value_fixed": "1",
            "stat": {
                "name": "answered_by_proxy",
                "tags": [
                    # The cluster is known before an upstream is called, also for weighted clusters; empty if the route
                    # has no cluster.
                    {"name": "cluster", "value_format": "%UPSTREAM_CLUSTER_RAW%"},
                    {"name": "virtual_host", "value_format": "%CEL(xds.virtual_host_name)%"},
                    {"name": "response_code", "value_format": "%RESPONSE_CODE%"},
                ],
            },
        }
    ],
}
# Envoy's response flags for an injected fault, no route and no cluster. The router counts all other failures in the
# statistics of the upstream cluster.
_FLAGS = ("FI", "NR", "NC")

# Istio's fields come first and in Istio's order, so that parsers of Istio's log lines work. weft's own fields follow as
# NAME=VALUE.
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
# Prefixes of the fields about the proxy's own application, which presents no certificate: text logs omit these fields.
_NEVER = {Reporter.CLIENT: "downstream_", Reporter.SERVER: "upstream_"}
# Log fields with the results of policies: the prefix and the key of each in the metadata of Envoy's RBAC filter. For
# TCP, a policy that allows a connection writes no metadata, and a policy that denies a connection is named in the
# connection termination details.
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

# CEL condition: the connection failed before its TLS handshake was complete. A failure after the handshake is an error
# of the system library, not of TLS. For accepted plaintext, the TLS inspector also records a reason why the connection
# is not TLS; that reason has no colon after `TLS_error`.
_NO_HANDSHAKE = (
    "connection.transport_failure_reason.startsWith('TLS_error:|') && "
    "!connection.transport_failure_reason.contains('system library')"
)
_HANDSHAKE = f"!has(connection.transport_failure_reason) || !({_NO_HANDSHAKE})"
_WITHOUT_QUERY = "REQ_WITHOUT_QUERY"


@lru_cache(maxsize=64)
def access_logs(settings: Settings, noted: frozenset[str] = frozenset()) -> tuple[AccessLog, ...]:
    """Return the loggers that write a line for each HTTP request. `noted`: the metadata prefixes under which the guards
    of these requests may write results, see `authorization.noted`."""
    return tuple(_written(log, _ours(settings, HTTP_FILTER, noted, log)) for log in settings.logs)


@lru_cache(maxsize=64)
def connection_logs(settings: Settings, noted: frozenset[str] = frozenset()) -> tuple[AccessLog, ...]:
    """Return the loggers that write a line for each connection that is not HTTP. Connections that `listener_logs`
    already logs are left out. `noted`: the metadata prefixes under which the guards of these connections may write
    results, see `authorization.noted`."""
    by_listener = settings.reporter is Reporter.SERVER and settings.listener_logs
    only = (_by_expression(_HANDSHAKE),) if by_listener else ()
    return tuple(_written(log, _ours(settings, NETWORK_FILTER, noted, log), *only) for log in settings.logs)


@lru_cache(maxsize=64)
def listener_logs(settings: Settings) -> tuple[AccessLog, ...]:
    """Return the loggers of a listener. They write a line for each connection that ended before any network filter: no
    filter chain matched (NR), such as for plaintext where only TLS is accepted, or the TLS handshake failed."""
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
    """Return weft's own log fields, as a mapping from name to format. A text log has only the fields that this proxy
    can fill; a JSON log has all of them, so that the names are the same at every proxy. The exception is
    `asked_policy_2` and higher, for further external authorizers. `policies`: the name of the RBAC filter into whose
    metadata the policies' results are written. `noted`: the prefixes of the metadata keys that this proxy's policies
    write (see `authorization.noted`)."""
    more = sorted(prefix for prefix in noted if prefix.startswith(ASKED) and prefix != ASKED)
    fields = {
        **_OF_POLICIES,
        **{f"asked_policy_{number}": (each, _POLICY) for number, each in enumerate(more, start=2)},
    }
    results = {
        name: f"%DYNAMIC_METADATA({policies}:{prefix}{key})%"
        for name, (prefix, key) in fields.items()
        if prefix in noted or log.encoding is Encoding.JSON
    }
    never = _NEVER.get(settings.reporter) if log.encoding is Encoding.TEXT else None
    return {name: command for name, command in _OURS.items() if not (never and name.startswith(never))} | results


def _by_expression(expression: str) -> AccessLogFilter:
    extension = ExtensionFilter(
        name="envoy.access_loggers.extension_filters.cel",
        typed_config=packed(ExpressionFilter(expression=expression)),
    )
    return AccessLogFilter(extension_filter=extension)


@lru_cache(maxsize=1)
def own_answers() -> AccessLog:
    """Return the logger that counts the requests to which the proxy responds itself, so that no upstream receives
    them. For all other requests it only checks the response flags and one metadata key, and formats nothing."""
    marked = MetadataFilter()
    marked.matcher.filter = MARKS
    marked.matcher.path.add().key = ANSWERED
    marked.matcher.value.present_match = True
    marked.match_if_key_not_found.value = False
    flagged = ResponseFlagFilter(flags=_FLAGS)
    either = OrFilter(filters=[AccessLogFilter(response_flag_filter=flagged), AccessLogFilter(metadata_filter=marked)])
    # The config is JSON, because the generated messages lack `stats_scope`, and Envoy warns about the older field.
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
