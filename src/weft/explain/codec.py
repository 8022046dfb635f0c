"""The checks of Envoy's HTTP codec, before any route or filter: invalid methods, hosts, paths and headers, and the
headers that the codec removes. Envoy responds to an invalid HTTP/1 request with 400 and does not log it; it resets an
invalid HTTP/2 stream."""

from __future__ import annotations

import re

from envoy.extensions.filters.network.http_connection_manager.v3.http_connection_manager_pb2 import (
    HttpConnectionManager,
)

from weft.explain.decision import DecisionStage, Kind, Verdict
from weft.explain.request import RequestHeaders
from weft.explain.rule import GuardInput
from weft.explain.walk import Walk

# The methods that Envoy's HTTP/1 parser accepts. `M-SEARCH` and lower case names are not among them.
_METHODS = frozenset(
    (
        *("ACL", "BIND", "CHECKOUT", "CONNECT", "COPY", "DELETE", "GET", "HEAD", "LINK", "LOCK", "MERGE", "MKACTIVITY"),
        *("MKCALENDAR", "MKCOL", "MOVE", "MSEARCH", "NOTIFY", "OPTIONS", "PATCH", "POST", "PROPFIND", "PROPPATCH"),
        *("PURGE", "PUT", "QUERY", "REBIND", "REPORT", "SEARCH", "SOURCE", "SUBSCRIBE", "TRACE", "UNBIND", "UNLINK"),
        *("UNLOCK", "UNSUBSCRIBE"),
    )
)
_AUTHORITY = re.compile(r"[A-Za-z0-9\-._~%!$&'()*+,;=:@\[\]]*")
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[^\x00-\x08\x0a-\x1f\x7f]*")
# Options in the header `Connection` that are not names of headers.
_OF_THE_CONNECTION = (
    "close",
    "http2-settings",
    "keep-alive",
    "upgrade",
)
_NOT_TO_NAME = ("x-forwarded-for", "x-forwarded-host", "x-forwarded-proto")
_MOST_NAMED = 10  # Envoy rejects a request whose `Connection` header lists this many names


def unreadable(walk: Walk, manager: HttpConnectionManager, seen: GuardInput) -> Verdict | None:
    """Return the verdict if Envoy's codec rejects the request; None if the request is valid. Changes `seen.headers`:
    as in Envoy, the headers that `Connection` names are removed from a valid HTTP/1 request. They are kept if the
    request asks for an upgrade, such as to WebSocket (but not to h2c)."""
    headers = seen.headers
    method, authority, path = (headers.value(name) for name in (":method", ":authority", ":path"))
    if not seen.http2 and method not in _METHODS and not manager.http_protocol_options.allow_custom_methods:
        return _refused(walk, seen, f"Envoy does not know the HTTP/1 method {method}")
    for name, value in headers:
        if not name.startswith(":") and not (_NAME.fullmatch(name) and _VALUE.fullmatch(value)):
            return _refused(walk, seen, f"{name!r}: {value!r} is not a valid header")
    if not _AUTHORITY.fullmatch(authority):
        return _refused(walk, seen, f"{authority!r} is not a valid host")
    if not path.startswith("/") and not (method == "OPTIONS" and path.startswith("*")):
        return _refused(walk, seen, f"{path!r} is not a valid path: it does not begin with a slash")
    if seen.http2 and headers.has("te") and headers.value("te") != "trailers":
        return _refused(walk, seen, f"TE is {headers.value('te')!r}, but HTTP/2 allows only trailers")
    if not seen.http2 and upgrade_of(headers) in ("", "h2c") and not _take_away(walk, headers):
        return _refused(
            walk,
            seen,
            f"Connection: {headers.value('connection')} names too many headers, or one that it must not name",
        )
    return None


def upgrade_of(headers: RequestHeaders) -> str:
    """The protocol to which a request asks to upgrade, lower case; "" if it asks for none."""
    named = [token.strip().lower() for token in headers.value("connection").split(",")]
    return headers.value("upgrade").lower() if "upgrade" in named else ""


def leave_of_te(headers: RequestHeaders) -> None:
    """Removes from the header TE every value but `trailers`. An empty TE is not changed."""
    if value := headers.value("te"):
        headers.remove("te")
        if "trailers" in (each.strip() for each in value.split(",")):
            headers.add("te", "trailers")


def _take_away(walk: Walk, headers: RequestHeaders) -> bool:
    """Removes the headers that `Connection` names. Returns False, and removes none, if `Connection` names too many
    headers or a header that it must not name."""
    named = [each.strip().lower() for each in headers.value("connection").split(",") if each]
    if len(named) >= _MOST_NAMED or any(each in _NOT_TO_NAME or each.startswith(":") for each in named):
        return False
    for name in named:
        if name in _OF_THE_CONNECTION or not headers.has(name):
            continue
        if name == "te" and "trailers" in (each.strip().lower() for each in headers.value("te").split(",")):
            headers.set("te", "trailers")
            continue
        if name != "connection":
            walk.tell(DecisionStage.ROUTE, f"the header {name} is removed: Connection names it")
        headers.remove(name)
    return True


def _refused(walk: Walk, seen: GuardInput, why: str) -> Verdict:
    walk.tell(DecisionStage.ROUTE, why)
    if seen.http2:
        return walk.end(Kind.CLOSED, why, flags="UPE", detail="http2.invalid.header.field")
    walk.grpc = False  # a 400 of the codec is plain HTTP, whatever the request's content-type is
    return walk.end(Kind.ANSWERED, why, status=400, detail="http1.codec_error")
