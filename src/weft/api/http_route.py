"""Reads one `http` entry of a VirtualService: its matches, destinations and changes to requests."""

from __future__ import annotations

import base64
import binascii

from weft.api.http_changes import read_cors, read_fault, read_headers, read_retries
from weft.api.metadata import Meta, gateway_names, host_reference
from weft.api.reader import Fields, quoted
from weft.api.string_match import named_matches, string_match, uri_match
from weft.api.syntax import is_dns_label
from weft.model.virtual_service import (
    Delegate,
    Destination,
    DirectResponse,
    Headers,
    HttpMatch,
    HttpRoute,
    Mirror,
    Redirect,
    Rewrite,
    WeightedDestination,
)

_ACTIONS = ("route", "redirect", "directResponse", "delegate")
_AUTHORITY = (":authority", "host")
_WITHOUT_BODY = (204, 304)  # by RFC 9110. Envoy would send a body anyway, and HTTP/2 clients reset the stream.


def read_http_route(item: Fields, meta: Meta, *, delegated: bool) -> HttpRoute:
    """Read an http route. `delegated`: its VirtualService has no hosts and is a delegate of another VirtualService."""
    _check_action(item, delegated=delegated)
    route = HttpRoute(
        name=item.text("name", most=1_024),
        match=tuple(_match(match, meta) for match in item.items("match")),
        route=read_destinations(item, meta, headers=True),
        redirect=_redirect(item),
        direct_response=_direct_response(item),
        delegate=_delegate(item, meta),
        rewrite=_rewrite(item),
        timeout=item.duration("timeout"),
        retries=read_retries(item),
        fault=read_fault(item),
        mirrors=_mirrors(item, meta),
        cors=read_cors(item),
        headers=read_headers(item),
        line=item.line,
    )
    _check_authority(item, route)
    return route


def read_destinations(item: Fields, meta: Meta, *, headers: bool) -> tuple[WeightedDestination, ...]:
    """Read the `route` list of an http, tls or tcp route: its destinations with their weights. `headers`: whether to
    read the `headers` of each destination too; true only for http routes."""
    destinations = []
    entries = item.items("route")
    for entry in entries:
        destination = entry.fields("destination", required=True)
        weight = entry.integer("weight") or 0
        destinations.append(
            WeightedDestination(
                destination=read_destination(destination, meta) if destination else Destination(""),
                weight=weight,
                headers=read_headers(entry) if headers else WeightedDestination(Destination("")).headers,
                line=entry.line,
            )
        )
    total = sum(entry.weight for entry in destinations)
    if len(destinations) > 1 and total == 0:
        what, hint = "the weights of the destinations add up to 0", "give at least one destination a `weight`"
        item.lacks("weight", below=entries, at="route", what=what, hint=hint)
    if total > 2**32 - 1:
        item.error("route", "the weights of the destinations add up to more than 4294967295")
    return tuple(destinations)


def _check_authority(item: Fields, route: HttpRoute) -> None:
    rewritten = bool(route.rewrite and route.rewrite.authority)
    whole = len(_authorities(route.headers))
    if whole + rewritten > 1:
        item.error("headers", "the authority is set in more than one place", "keep `rewrite.authority` or one header")
    elif whole or rewritten:
        where = "`rewrite`" if rewritten else "the route's own `headers`"
        for index, entry in enumerate(route.route):
            if _authorities(entry.headers):
                what = f"the authority is set by {where}: the authority that this destination sets has no effect"
                item.warning(("route", index, "headers"), what, f"set the authority in {where} or in the destination")


def _authorities(headers: Headers) -> list[str]:
    changes = headers.request
    return [name for name, _ in (*changes.set, *changes.add) if name.lower() in _AUTHORITY]


def _check_action(item: Fields, *, delegated: bool) -> None:
    there = [name for name in _ACTIONS if item.has(name)]
    hint = f"set exactly one of {quoted(_ACTIONS)}"
    if not there:
        item.lacks(*_ACTIONS, what="the http route has no action", hint=hint)
    elif len(there) > 1:
        item.error((), f"the http route has {quoted(there)} at once", hint)
    elif item.raw("route") == []:
        item.error("route", "`route` must not be empty")
    if "delegate" in there and delegated:
        item.error("delegate", "a VirtualService without hosts is a delegate and cannot delegate further")
    for name, words in (("redirect", "a redirect"), ("directResponse", "a direct response")):
        if name in there:
            _responds_itself(item, words)


def _responds_itself(item: Fields, words: str) -> None:
    """Check the route `item`, to which the proxy itself responds, instead of forwarding requests: `fault` and `rewrite`
    are errors; fields that have no effect, but that Istio accepts, get a warning. `words`: the name of the response in
    messages, such as `a redirect`."""
    for name in ("fault", "rewrite"):
        if item.has(name):
            item.error(name, f"{words} cannot have `{name}`")
    for name in ("timeout", "retries", "mirror", "mirrors", "corsPolicy"):
        if item.has(name):
            item.warning(name, f"{words} is sent by the proxy itself: `{name}` has no effect", f"remove `{name}`")


def _match(match: Fields, meta: Meta) -> HttpMatch:
    return HttpMatch(
        name=match.text("name", most=1_024),
        uri=uri_match(match, "uri"),
        scheme=string_match(match, "scheme"),
        method=string_match(match, "method"),
        authority=string_match(match, "authority"),
        headers=named_matches(match, "headers", headers=True),
        without_headers=named_matches(match, "withoutHeaders", headers=True, star=True),
        query_params=named_matches(match, "queryParams", headers=False),
        ignore_uri_case=match.boolean("ignoreUriCase") or False,
        port=match.port("port"),
        source_labels=match.labels("sourceLabels"),
        source_namespace=match.checked("sourceNamespace", is_dns_label, "a namespace", most=63),
        gateways=gateway_names(match, meta),
        stat_prefix=match.text("statPrefix", most=1_024),
    )


def read_destination(fields: Fields, meta: Meta) -> Destination:
    subset = fields.checked("subset", is_dns_label, "a subset name", most=63)
    port = fields.fields("port")
    return Destination(host_reference(fields, "host", meta), subset, port.port("number", required=True) if port else 0)


def _redirect(item: Fields) -> Redirect | None:
    fields = item.fields("redirect")
    if fields is None:
        return None
    fields.one_of("port", "derivePort")
    changed = ("uri", "authority", "port", "derivePort", "scheme")
    if not any(fields.has(name) for name in changed):
        what, hint = "`redirect` must change something", "set `uri`, `authority`, `scheme` or `port`"
        fields.lacks(*changed, what=what, hint=hint)
    return Redirect(
        uri=fields.request_text("uri", most=16_384),
        authority=fields.request_text("authority", most=1_024),
        port=fields.port("port"),
        derive_port=fields.choice("derivePort", ("FROM_PROTOCOL_DEFAULT", "FROM_REQUEST_PORT")),
        scheme=fields.choice("scheme", ("http", "https")),
        code=_code(fields),
    )


def _code(fields: Fields) -> int:
    code = fields.integer("redirectCode") or 301
    if code not in (301, 302, 303, 307, 308):  # the codes that Envoy can send
        fields.error("redirectCode", f"{code} is not a redirect code", "use 301, 302, 303, 307 or 308")
    return code


def _direct_response(item: Fields) -> DirectResponse | None:
    fields = item.fields("directResponse")
    if fields is None:
        return None
    if not fields.has("status"):
        fields.lacks("status", what="`status` is required")
    status = fields.integer("status", least=200, most=599) or 200
    body, text, data = fields.fields("body"), "", b""
    if body is not None:
        body.one_of("string", "bytes")
        text = body.text("string")
        try:
            data = base64.b64decode(body.text("bytes"), validate=True)
        except (binascii.Error, ValueError):
            body.error("bytes", "`bytes` must be base64", "for text, use `string`")
    if status in _WITHOUT_BODY and (text or data):
        fields.warning("body", f"a response with status {status} has no body: `body` is not sent", "remove the body")
        return DirectResponse(status)
    return DirectResponse(status, text, data)


def _delegate(item: Fields, meta: Meta) -> Delegate | None:
    fields = item.fields("delegate")
    if fields is None:
        return None
    name = fields.text("name", required=True, most=253)
    return Delegate(name, fields.text("namespace", most=63) or meta.namespace)


def _rewrite(item: Fields) -> Rewrite | None:
    fields = item.fields("rewrite")
    if fields is None:
        return None
    fields.one_of("uri", "uriRegexRewrite")
    changed = ("uri", "uriRegexRewrite", "authority")
    if not any(fields.has(name) for name in changed):
        what, hint = "`rewrite` must change something", "set `uri`, `uriRegexRewrite` or `authority`"
        fields.lacks(*changed, what=what, hint=hint)
    regex = fields.fields("uriRegexRewrite")
    return Rewrite(
        uri=fields.request_text("uri", most=16_384),
        authority=fields.request_text("authority", most=1_024),
        regex_match=regex.regex("match", required=True) if regex else "",
        regex_rewrite=regex.request_text("rewrite", required=True, most=16_384) if regex else "",
    )


def _mirrors(item: Fields, meta: Meta) -> tuple[Mirror, ...]:
    item.one_of("mirror", "mirrors")
    mirrors = []
    single = item.fields("mirror")
    old, percentage = item.integer("mirrorPercent", most=100), item.percent("mirrorPercentage")
    if old is not None:
        item.warning("mirrorPercent", "`mirrorPercent` is deprecated", "use `mirrorPercentage: {value: …}`")
    if single is not None:
        share = percentage if percentage is not None else old
        mirrors.append(Mirror(read_destination(single, meta), 100.0 if share is None else float(share), single.line))
    for entry in item.items("mirrors"):
        destination = entry.fields("destination", required=True)
        share = entry.percent("percentage")
        if destination is not None:
            mirrors.append(Mirror(read_destination(destination, meta), 100.0 if share is None else share, entry.line))
    return tuple(mirrors)
