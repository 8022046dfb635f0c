"""Reads the Gateway API's HTTPRoute. A setting that weft cannot apply exactly is rejected."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from weft.api.gateway_api.filters import BACKEND, HTTP, Filters, read_filters
from weft.api.gateway_api.references import read_backend, read_hostnames, read_parents
from weft.api.http_changes import METHODS
from weft.api.metadata import Meta
from weft.api.reader import Fields
from weft.api.string_match import MOST_QUERY_NAME
from weft.api.syntax import is_header
from weft.base.suggest import did_you_mean
from weft.model.gateway_api import Backend, RouteKind, RouteRule, StandardRoute
from weft.model.virtual_service import HttpMatch, HttpRoute, MatchKind, Retries, StringMatch

_NEVER = timedelta(0)
EVERYTHING = HttpMatch(uri=StringMatch(MatchKind.PATH_PREFIX, "/"))
# Retry conditions for requests that never reached the server: the same as the default in `translate/retries.py`.
_UNREAD = "connect-failure,refused-stream,reset-before-request"
_ATTEMPTS = 2


def read_http_route(root: Fields, meta: Meta) -> tuple[StandardRoute, ...]:
    return read_requests(root, meta, RouteKind.HTTP, _rule)


def read_requests(
    root: Fields, meta: Meta, kind: RouteKind, read_rule: Callable[[Fields, Meta, int], RouteRule]
) -> tuple[StandardRoute, ...]:
    """Read an HTTPRoute or GRPCRoute (`kind`). `read_rule` reads one rule, given its fields, the metadata of the route
    and the position of the rule. A route without rules matches every request."""
    spec = root.fields("spec", required=True)
    if spec is None:
        return ()
    rules = tuple(read_rule(item, meta, index) for index, item in enumerate(spec.items("rules")))
    return (
        StandardRoute(
            kind=kind,
            name=meta.name,
            namespace=meta.namespace,
            parents=read_parents(spec, meta),
            hostnames=read_hostnames(spec),
            rules=rules or (RouteRule(matches=(EVERYTHING,), line=spec.line),),
            created=meta.created,
            origin=meta.origin,
        ),
    )


def _rule(item: Fields, meta: Meta, index: int) -> RouteRule:
    refuse_persistence(item)
    matches = tuple(_match(match) for match in item.items("matches")) or (EVERYTHING,)
    filters = read_filters(item, meta, HTTP)
    if filters.prefix_replaced:
        _check_prefixes(item, matches)
    backends = read_backends(item, meta)
    if filters.redirect is not None:
        _check_redirect(item, filters, backends)
    request, single = _timeouts(item)
    return RouteRule(
        route=HttpRoute(
            name=item.text("name", most=253) or f"{meta.namespace}.{meta.name}.{index}",
            redirect=filters.redirect,
            rewrite=filters.rewrite,
            timeout=request,
            retries=_retries(item, single),
            cors=filters.cors,
            headers=filters.headers,
            line=item.line,
            origin=meta.origin,
        ),
        matches=matches,
        backends=backends,
        mirrors=filters.mirrors,
        line=item.line,
    )


def read_backends(item: Fields, meta: Meta, allowed: tuple[str, ...] = BACKEND) -> tuple[Backend, ...]:
    """Read the `backendRefs` of a rule, each with its own header changes. `allowed`: the types of filters that a
    backend may have; if empty, `filters` of backends are not read."""
    backends = []
    for entry in item.items("backendRefs"):
        filters = read_filters(entry, meta, allowed) if allowed else Filters()
        backends.append(read_backend(entry, meta, filters.headers))
    return tuple(backends)


def refuse_persistence(item: Fields) -> None:
    item.refused(
        "sessionPersistence",
        "weft does not support `sessionPersistence`",
        "use `consistentHash` with `httpCookie` of a DestinationRule to keep a client at one pod",
    )


def read_named(item: Fields, name: str, *, headers: bool) -> tuple[tuple[str, StringMatch], ...]:
    """Read the list `name` of header matches (`headers`: true) or query parameter matches (false), sorted by name. If
    two matches have the same name, the first one counts, as the Gateway API requires."""
    matches: dict[str, StringMatch] = {}
    for entry in item.items(name):
        key, kind = entry.text("name", required=True, most=256), _kind(entry, ("Exact", "RegularExpression"))
        if headers and key and not is_header(key):
            entry.error("name", f"`{key[:80]}` is not a header name")
        elif not headers and len(key.encode()) > MOST_QUERY_NAME:
            entry.error("name", f"the name of a query parameter is longer than {MOST_QUERY_NAME} bytes")
        if kind == "RegularExpression":
            wanted = StringMatch(MatchKind.REGEX, entry.regex("value", required=True))
        else:
            wanted = StringMatch(MatchKind.EXACT, entry.text("value", required=True, most=4_096))
        matches.setdefault(key.lower() if headers else key, wanted)
    return tuple(sorted(matches.items()))


def _match(match: Fields) -> HttpMatch:
    method = match.text("method", most=32)
    if method and (method not in METHODS or method == "*"):
        match.error("method", f"`{method}` is not an HTTP method", did_you_mean(method, METHODS - {"*"}))
    return HttpMatch(
        uri=_path(match.fields("path")),
        method=StringMatch(MatchKind.EXACT, method) if method else None,
        headers=read_named(match, "headers", headers=True),
        query_params=read_named(match, "queryParams", headers=False),
    )


def _path(fields: Fields | None) -> StringMatch:
    if fields is None:
        return StringMatch(MatchKind.PATH_PREFIX, "/")
    kind = _kind(fields, ("PathPrefix", "Exact", "RegularExpression"))
    if kind == "RegularExpression":
        return StringMatch(MatchKind.REGEX, fields.regex("value") or "/")
    value = fields.request_text("value", most=1_024) or "/"
    if not value.startswith("/"):
        fields.error("value", "a path must begin with a slash")
    if "?" in value or "#" in value:
        fields.error("value", "a path cannot contain `?` or `#`", "match the query by `queryParams`")
    return StringMatch(MatchKind.EXACT if kind == "Exact" else MatchKind.PATH_PREFIX, value)


def _kind(fields: Fields, kinds: tuple[str, ...]) -> str:
    return fields.choice("type", kinds, default=kinds[0])


def _check_prefixes(item: Fields, matches: tuple[HttpMatch, ...]) -> None:
    for index, match in enumerate(matches):
        if match.uri is not None and match.uri.kind is not MatchKind.PATH_PREFIX:
            item.error(
                ("matches", index) if item.raw("matches") else (),
                "ReplacePrefixMatch needs a PathPrefix match, and this match has another type",
                "use ReplaceFullPath, or match by PathPrefix",
            )


def _check_redirect(item: Fields, filters: Filters, backends: tuple[Backend, ...]) -> None:
    if backends:
        item.error("backendRefs", "a rule that redirects has no backends", "remove `backendRefs`, or the redirect")
    useless = [(name, f"`{name}`") for name in ("timeouts", "retry") if item.has(name)]
    useless += [("filters", "RequestMirror")] if filters.mirrors else []
    for name, words in useless:
        item.warning(name, f"a redirect is sent by the proxy itself: {words} has no effect", f"remove {words}")


def _timeouts(item: Fields) -> tuple[timedelta | None, timedelta | None]:
    """Return (request, try): the timeout of the whole request, and that of each try; None for a timeout that is not
    set, or is 0s."""
    fields = item.fields("timeouts")
    if fields is None:
        return None, None
    request, single = fields.duration("request", least=_NEVER), fields.duration("backendRequest", least=_NEVER)
    if request and single and single > request:
        fields.error("backendRequest", "`backendRequest` must not be longer than `request`")
    return request or None, single or None


def _retries(item: Fields, single: timedelta | None) -> Retries | None:
    fields = item.fields("retry")
    if fields is None:
        return Retries(_ATTEMPTS, single, _UNREAD) if single is not None else None
    codes = []
    raw = fields.raw("codes")
    for index, code in enumerate(raw if isinstance(raw, list) else ()):
        if isinstance(code, bool) or not isinstance(code, int) or not 400 <= code <= 599:
            fields.error(("codes", index), f"`{code}` is not a status to retry on", "use a status from 400 to 599")
        else:
            codes.append(str(code))
    if raw is not None and not isinstance(raw, list):
        fields.error("codes", "`codes` must be a list of status codes")
    attempts = fields.integer("attempts", most=10_000)
    return Retries(
        attempts=_ATTEMPTS if attempts is None else attempts,
        per_try_timeout=single,
        # Connection errors are always retried, as the Gateway API requires.
        retry_on=",".join(("connect-failure", "refused-stream", "reset", *codes)),
        backoff=fields.duration("backoff"),
    )
