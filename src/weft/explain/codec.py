"""What a proxy's codec makes of a request, before any route or filter sees it: what it does not take as a method, a
host, a path or a header, and which headers it takes away. To HTTP/1 that cannot be read it says 400, and logs nothing
of it; HTTP/2 it ends."""

from __future__ import annotations

import re

from envoy.extensions.filters.network.http_connection_manager.v3.http_connection_manager_pb2 import (
    HttpConnectionManager,
)

from weft.explain.decision import DecisionStage, Kind, Verdict
from weft.explain.request import RequestHeaders
from weft.explain.rule import GuardInput
from weft.explain.walk import Walk

# Those that Envoy's parser of HTTP/1 knows; `M-SEARCH` is not among them, nor is any in lower case.
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
_OF_THE_CONNECTION = ("close", "http2-settings", "keep-alive", "upgrade")  # that is said of it, and names no header
_NOT_TO_NAME = ("x-forwarded-for", "x-forwarded-host", "x-forwarded-proto")
_MOST_NAMED = 10  # headers that `Connection` names


def unreadable(walk: Walk, manager: HttpConnectionManager, seen: GuardInput) -> Verdict | None:
    """None if the request can be read. Takes away what is for its connection alone."""
    headers = seen.headers
    method, authority, path = (headers.value(name) for name in (":method", ":authority", ":path"))
    if not seen.http2 and method not in _METHODS and not manager.http_protocol_options.allow_custom_methods:
        return _refused(walk, seen, f"{method} is no method that Envoy knows in HTTP/1")
    for name, value in headers:
        if not name.startswith(":") and not (_NAME.fullmatch(name) and _VALUE.fullmatch(value)):
            return _refused(walk, seen, f"{name!r}: {value!r} is no header")
    if not _AUTHORITY.fullmatch(authority):
        return _refused(walk, seen, f"{authority!r} is no host")
    if not path.startswith("/") and not (method == "OPTIONS" and path.startswith("*")):
        return _refused(walk, seen, f"{path!r} is no path: it does not begin with a slash")
    if seen.http2 and headers.has("te") and headers.value("te") != "trailers":
        return _refused(walk, seen, f"TE is {headers.value('te')!r}, and in HTTP/2 it can only be trailers")
    if not seen.http2 and upgrade_of(headers) in ("", "h2c") and not _take_away(walk, headers):
        return _refused(walk, seen, f"Connection: {headers.value('connection')} names what it must not")
    return None


def upgrade_of(headers: RequestHeaders) -> str:
    """The protocol that a request asks to go on in, lower case."""
    named = [token.strip().lower() for token in headers.value("connection").split(",")]
    return headers.value("upgrade").lower() if "upgrade" in named else ""


def leave_of_te(headers: RequestHeaders) -> None:
    """Only trailers can be had; an empty one is passed over, and stays."""
    if said := headers.value("te"):
        headers.remove("te")
        if "trailers" in (each.strip() for each in said.split(",")):
            headers.add("te", "trailers")


def _take_away(walk: Walk, headers: RequestHeaders) -> bool:
    """Whatever `Connection` names is for the connection alone. False if that may not be said."""
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
            walk.tell(DecisionStage.ROUTE, f"the header {name} goes no further: Connection names it")
        headers.remove(name)
    return True


def _refused(walk: Walk, seen: GuardInput, why: str) -> Verdict:
    walk.tell(DecisionStage.ROUTE, why)
    if seen.http2:
        return walk.end(Kind.CLOSED, why, flags="UPE", detail="http2.invalid.header.field")
    walk.grpc = False  # whatever it says it is
    return walk.end(Kind.ANSWERED, why, status=400, detail="http1.codec_error")
