"""Reads the settings of an http route that change requests or responses: headers, retries, faults, CORS."""

from __future__ import annotations

import re

from weft.api.reader import Fields
from weft.api.string_match import read_match
from weft.api.syntax import is_header, words
from weft.base.problem import Severity
from weft.base.suggest import did_you_mean
from weft.model.virtual_service import Abort, CorsPolicy, Delay, Fault, HeaderChanges, Headers, Retries

RETRY_ON = frozenset(
    words("""
    5xx gateway-error reset reset-before-request connect-failure envoy-ratelimited retriable-4xx refused-stream
    retriable-status-codes retriable-headers http3-post-connect-failure cancelled deadline-exceeded internal
    resource-exhausted unavailable
    """)
)
GRPC_STATUSES = frozenset(
    words("""
    OK CANCELLED UNKNOWN INVALID_ARGUMENT DEADLINE_EXCEEDED NOT_FOUND ALREADY_EXISTS PERMISSION_DENIED
    RESOURCE_EXHAUSTED FAILED_PRECONDITION ABORTED OUT_OF_RANGE UNIMPLEMENTED INTERNAL UNAVAILABLE DATA_LOSS
    UNAUTHENTICATED
    """)
)
METHODS = frozenset(
    words("""
    GET HEAD POST PUT PATCH DELETE CONNECT OPTIONS TRACE *
    """)
)
# Envoy accepts 1,000 header changes per route, including those of its destination; each of the two may have half of
# them.
MOST_HEADERS = 500
MOST_VALUE = 16_384  # bytes; Envoy's own limit

_AUTHORITY = (":authority", "host")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_COMMAND = re.compile(r"%(%|[A-Z0-9_]+(\([^%()]*\))?(:[0-9]+)?%)")


def read_headers(holder: Fields) -> Headers:
    fields = holder.fields("headers")
    if fields is None:
        return Headers()
    request, response = fields.fields("request"), fields.fields("response")
    return Headers(
        _changes(request, authority=True) if request else HeaderChanges(),
        _changes(response, authority=False) if response else HeaderChanges(),
    )


def _changes(fields: Fields, *, authority: bool) -> HeaderChanges:
    count = sum(len(fields.string_map(name)) for name in ("set", "add"))
    if count > MOST_HEADERS:
        fields.error((), f"{count} headers are set or added, and at most {MOST_HEADERS} are allowed")
    return HeaderChanges(
        set=_pairs(fields, "set", authority=authority),
        add=_pairs(fields, "add", authority=authority),
        remove=_removed(fields),
    )


def _pairs(fields: Fields, name: str, *, authority: bool) -> tuple[tuple[str, str], ...]:
    pairs = tuple(sorted(fields.string_map(name).items()))
    for header, value in pairs:
        _check_header(fields, (name, header), header, authority=authority)
        if _CONTROL.search(value):
            fields.error((name, header), f"the value of `{header[:80]}` contains a line break or a control character")
        elif "%" in _COMMAND.sub("", value):
            fields.error(
                (name, header),
                f"`{value[:80]}` is not a header value",
                "write a percent sign as %%, or a command as %NAME%",
            )
        elif len(value.encode()) > MOST_VALUE:
            fields.error((name, header), f"the value of `{header[:80]}` is longer than {MOST_VALUE} bytes")
    return pairs


def _removed(fields: Fields) -> tuple[str, ...]:
    names = fields.texts("remove")
    for index, header in enumerate(names):
        _check_header(fields, ("remove", index), header, authority=False)
    return names


def _check_header(fields: Fields, at: tuple[str | int, ...], header: str, *, authority: bool) -> None:
    if header.lower() in _AUTHORITY:
        if not authority:
            fields.error(at, f"`{header}` can only be set on requests")
    elif not is_header(header):
        fields.error(at, f"`{header[:80]}` is not a header that can be changed")


def read_retries(item: Fields, name: str = "retries") -> Retries | None:
    fields = item.fields(name)
    if fields is None:
        return None
    attempts = fields.integer("attempts", most=10_000) or 0
    retry_on = ",".join(part.strip() for part in fields.text("retryOn", most=1_024).split(",") if part.strip())
    for part in retry_on.split(",") if retry_on else ():
        if part not in RETRY_ON and not (part.isdecimal() and 100 <= int(part[:5]) <= 599):
            fields.error("retryOn", f"`{part}` is not a retry condition", did_you_mean(part, RETRY_ON))
    if attempts == 0 and any(fields.has(name) for name in ("perTryTimeout", "retryOn", "retryRemoteLocalities")):
        fields.lacks(
            "attempts",
            at="attempts" if fields.has("attempts") else (),
            what="`attempts` is 0, so there are no retries",
            hint="set `attempts`, or keep only `attempts: 0`",
        )
    ignore = fields.boolean("retryIgnorePreviousHosts")
    return Retries(
        attempts=attempts,
        per_try_timeout=fields.duration("perTryTimeout"),
        retry_on=retry_on,
        retry_remote_localities=fields.boolean("retryRemoteLocalities") or False,
        ignore_previous_hosts=True if ignore is None else ignore,
        backoff=fields.duration("backoff"),
    )


def read_fault(item: Fields) -> Fault | None:
    fields = item.fields("fault")
    if fields is None:
        return None
    delay, abort = fields.fields("delay"), fields.fields("abort")
    if delay is None and abort is None:
        fields.lacks("delay", "abort", what="`fault` must have `delay` or `abort`")
    return Fault(_delay(delay) if delay else None, _abort(abort) if abort else None)


def _delay(fields: Fields) -> Delay | None:
    fields.refused("exponentialDelay", "neither weft nor Istio supports `exponentialDelay`", "use `fixedDelay`")
    fixed, share = fields.duration("fixedDelay", required=True), _share(fields)
    return Delay(fixed, share) if fixed is not None else None


def _abort(fields: Fields) -> Abort:
    fields.refused("http2Error", "neither weft nor Istio supports `http2Error`", "use `httpStatus` or `grpcStatus`")
    if not fields.one_of("httpStatus", "grpcStatus", "http2Error"):
        fields.lacks("httpStatus", "grpcStatus", what="`abort` needs a status", hint="set `httpStatus` or `grpcStatus`")
    return Abort(
        http_status=fields.integer("httpStatus", least=200, most=599) or 0,
        grpc_status=fields.choice("grpcStatus", GRPC_STATUSES),
        percentage=_share(fields),
    )


def _share(fields: Fields) -> float:
    old, share = fields.integer("percent", most=100), fields.percent("percentage")
    if old is not None:
        fields.warning("percent", "`percent` is deprecated", "use `percentage: {value: …}`")
    if share is None and old is None:
        what, hint = "a fault without `percentage` applies to no request", "add `percentage: {value: 100}`"
        fields.lacks("percentage", "percent", what=what, hint=hint, severity=Severity.WARNING)
    return share if share is not None else float(old or 0)


def read_cors(item: Fields) -> CorsPolicy | None:
    fields = item.fields("corsPolicy")
    if fields is None:
        return None
    methods = fields.texts("allowMethods")
    for index, method in enumerate(methods):
        if method not in METHODS:
            fields.error(("allowMethods", index), f"`{method}` is not an HTTP method", did_you_mean(method, METHODS))
    for name in ("allowHeaders", "exposeHeaders"):
        for index, header in enumerate(fields.texts(name)):
            if not is_header(header):
                fields.error((name, index), f"`{header[:80]}` is not a header name")
    fields.refused("allowOrigin", "`allowOrigin` was removed from Istio", "use `allowOrigins: [{exact: …}]`")
    age = fields.duration("maxAge")
    if age is not None and age.microseconds:
        fields.error("maxAge", "`maxAge` must be in whole seconds")
    return CorsPolicy(
        allow_origins=tuple(read_match(origin, presence=False) for origin in fields.items("allowOrigins")),
        allow_methods=methods,
        allow_headers=fields.texts("allowHeaders"),
        expose_headers=fields.texts("exposeHeaders"),
        max_age=age,
        allow_credentials=fields.boolean("allowCredentials"),
        unmatched_preflights=fields.choice("unmatchedPreflights", ("UNSPECIFIED", "FORWARD", "IGNORE")),
    )
