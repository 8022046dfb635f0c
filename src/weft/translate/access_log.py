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
    MetadataFilter,
    OrFilter,
    ResponseFlagFilter,
)
from envoy.extensions.access_loggers.file.v3.file_pb2 import FileAccessLog
from envoy.extensions.access_loggers.stream.v3.stream_pb2 import StderrAccessLog, StdoutAccessLog
from google.protobuf.json_format import ParseDict
from xds.type.v3.typed_struct_pb2 import TypedStruct

from weft.model.settings import Settings
from weft.translate.filters import ANSWERED, MARKS
from weft.translate.protos import packed

# The counter's name and tags; weft's own view of traffic reads it, and so may a Prometheus.
_COUNTER = {
    "stats_scope": {"prefix": "weft"},
    "counters": [
        {
            "value_fixed": 1,
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

_TEXT = (
    '[%START_TIME%] "%REQ(:METHOD)% %REQ(X-ENVOY-ORIGINAL-PATH?:PATH)% %PROTOCOL%" %RESPONSE_CODE% %RESPONSE_FLAGS% '
    '%RESPONSE_CODE_DETAILS% %CONNECTION_TERMINATION_DETAILS% "%UPSTREAM_TRANSPORT_FAILURE_REASON%" %BYTES_RECEIVED% '
    '%BYTES_SENT% %DURATION% %RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)% "%REQ(X-FORWARDED-FOR)%" "%REQ(USER-AGENT)%" '
    '"%REQ(X-REQUEST-ID)%" "%REQ(:AUTHORITY)%" "%UPSTREAM_HOST%" %UPSTREAM_CLUSTER_RAW% %UPSTREAM_LOCAL_ADDRESS% '
    "%DOWNSTREAM_LOCAL_ADDRESS% %DOWNSTREAM_REMOTE_ADDRESS% %REQUESTED_SERVER_NAME% %ROUTE_NAME%\n"
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


@lru_cache(maxsize=16)
def access_logs(settings: Settings) -> tuple[AccessLog, ...]:
    if not settings.access_log:
        return ()
    log, name = _logger(settings.access_log)
    if settings.access_log_encoding == "JSON":
        fields = json.loads(settings.access_log_format) if settings.access_log_format else _JSON
        ParseDict(fields, log.log_format.json_format)
    else:
        log.log_format.text_format_source.inline_string = settings.access_log_format or _TEXT
    return (AccessLog(name=name, typed_config=packed(log)),)


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
    ParseDict(_COUNTER, config.value)
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
