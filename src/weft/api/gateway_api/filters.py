"""Reads the filters of HTTPRoute and GRPCRoute rules, into the same values that routes of a VirtualService have. Rule:
a header's value is plain text; Envoy's command operators in it are escaped."""

from __future__ import annotations

import re
from datetime import timedelta

import msgspec
from msgspec.structs import replace

from weft.api.gateway_api.references import read_backend
from weft.api.http_changes import METHODS, MOST_HEADERS, MOST_VALUE
from weft.api.metadata import Meta
from weft.api.reader import Fields, quoted
from weft.api.syntax import is_header
from weft.base.suggest import did_you_mean
from weft.model.gateway_api import Backend
from weft.model.virtual_service import (
    CorsPolicy,
    HeaderChanges,
    Headers,
    MatchKind,
    Redirect,
    Rewrite,
    StringMatch,
)

_FIELDS = {
    "RequestHeaderModifier": "requestHeaderModifier",
    "ResponseHeaderModifier": "responseHeaderModifier",
    "RequestMirror": "requestMirror",
    "RequestRedirect": "requestRedirect",
    "URLRewrite": "urlRewrite",
    "CORS": "cors",
}
HTTP = tuple(_FIELDS)
GRPC = HTTP[:3]
BACKEND = HTTP[:2]
_ELSEWHERE = {"ExtensionRef": "extensionRef", "ExternalAuth": "externalAuth"}  # not supported
_REPEATABLE = ("RequestMirror",)
_LEAST_MAX_AGE = timedelta(seconds=5)  # the default in the Gateway API
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


class Filters(msgspec.Struct, frozen=True):
    headers: Headers = Headers()
    redirect: Redirect | None = None
    rewrite: Rewrite | None = None
    mirrors: tuple[tuple[Backend, float], ...] = ()
    cors: CorsPolicy | None = None
    prefix_replaced: bool = False  # if set, every match of the rule must be a prefix match


def read_filters(holder: Fields, meta: Meta, allowed: tuple[str, ...]) -> Filters:
    request = response = HeaderChanges()
    found = Filters()
    seen: set[str] = set()
    for item in holder.items("filters"):
        kind = _type(item, allowed)
        if kind in seen and kind not in _REPEATABLE:
            item.error("type", f"a filter of type {kind} is already listed above", "merge the two filters")
        seen.add(kind)
        for other in allowed:
            if other == kind and not item.has(_FIELDS[kind]):
                item.lacks(_FIELDS[kind], what=f"`{_FIELDS[kind]}` is required")
            body = item.fields(_FIELDS[other])
            if body is None:
                continue
            if kind and other != kind:
                item.error(_FIELDS[other], f"`{_FIELDS[other]}` is set in a filter of type {kind}")
            match other:
                case "RequestHeaderModifier":
                    request = _changes(body, authority=True)
                case "ResponseHeaderModifier":
                    response = _changes(body, authority=False)
                case "RequestMirror":
                    found = replace(found, mirrors=(*found.mirrors, *_mirror(body, meta)))
                case "RequestRedirect":
                    found = replace(found, redirect=_redirect(body))
                case "URLRewrite":
                    found = replace(found, rewrite=_rewrite(body))
                case "CORS":
                    found = replace(found, cors=_cors(body))
    if found.redirect is not None and found.rewrite is not None:
        holder.error(
            "filters", "a rule cannot both redirect and rewrite a request", "keep either RequestRedirect or URLRewrite"
        )
    replaced = any(each is not None and each.prefix for each in (found.redirect, found.rewrite))
    return replace(found, headers=Headers(request, response), prefix_replaced=replaced)


def _type(item: Fields, allowed: tuple[str, ...]) -> str:
    kind = item.text("type", required=True, most=63)
    hint = f"supported: {quoted(allowed)}"
    elsewhere = {**_ELSEWHERE, **{other: name for other, name in _FIELDS.items() if other not in allowed}}
    for other, name in elsewhere.items():
        item.refused(name, f"weft does not support the filter {other} here", hint)
    if kind in elsewhere:
        if not item.has(elsewhere[kind]):
            item.error("type", f"weft does not support the filter {kind} here", hint)
        return ""
    if kind and kind not in allowed:
        item.error("type", f"there is no filter `{kind}`", did_you_mean(kind, allowed))
        return ""
    return kind


def _changes(fields: Fields, *, authority: bool) -> HeaderChanges:
    remove = fields.texts("remove", most=256)
    for index, name in enumerate(remove):
        if not is_header(name):
            fields.error(("remove", index), f"`{name[:80]}` is not a header that can be changed")
    return HeaderChanges(
        set=_pairs(fields, "set", authority=authority), add=_pairs(fields, "add", authority=authority), remove=remove
    )


def _pairs(fields: Fields, name: str, *, authority: bool) -> tuple[tuple[str, str], ...]:
    pairs: dict[str, tuple[str, str]] = {}
    items = fields.items(name)
    if len(items) > MOST_HEADERS:
        fields.error(name, f"`{name}` has more than {MOST_HEADERS} headers")
    for item in items:
        header, value = item.text("name", required=True, most=256), item.text("value", required=True, most=MOST_VALUE)
        if header.lower() in ("host", ":authority"):
            if not authority:
                item.error("name", f"`{header}` can only be set on requests")
        elif header and not is_header(header):
            item.error("name", f"`{header[:80]}` is not a header that can be changed")
        if _CONTROL.search(value):
            item.error("value", "the value contains a line break or a control character")
        # If two entries have the same name, the first one counts, as the Gateway API requires.
        pairs.setdefault(header.lower(), (header, value.replace("%", "%%")))
    return tuple(sorted(pairs.values()))


def _mirror(fields: Fields, meta: Meta) -> tuple[tuple[Backend, float], ...]:
    backend = fields.fields("backendRef", required=True)
    fields.one_of("percent", "fraction")
    percent, fraction = fields.integer("percent", most=100), fields.fields("fraction")
    share = 100.0 if percent is None else float(percent)
    if fraction is not None:
        numerator = fraction.integer("numerator") or 0
        denominator = fraction.integer("denominator", least=1) or 100
        if numerator > denominator:
            fraction.error("numerator", f"`numerator` must be at most `denominator`, which is {denominator}")
        share = 100.0 * numerator / denominator
    return ((read_backend(backend, meta, weighted=False), share),) if backend is not None else ()


def _redirect(fields: Fields) -> Redirect:
    code = fields.integer("statusCode") or 302
    if code not in (301, 302, 303, 307, 308):
        fields.error("statusCode", f"{code} is not a redirect code", "use 301, 302, 303, 307 or 308")
    scheme = fields.choice("scheme", ("http", "https"))
    full, prefix = _path(fields)
    port = fields.port("port")
    return Redirect(
        uri=full,
        authority=fields.host("hostname"),
        port=port,
        # With a scheme, the port is the scheme's default port; without a scheme, the request's port is kept.
        derive_port="" if port else "FROM_PROTOCOL_DEFAULT" if scheme else "FROM_REQUEST_PORT",
        scheme=scheme,
        code=code,
        prefix=prefix,
    )


def _rewrite(fields: Fields) -> Rewrite:
    full, prefix = _path(fields)
    if not any(fields.has(name) for name in ("hostname", "path")):
        fields.lacks("hostname", "path", what="`urlRewrite` must change something", hint="set `hostname` or `path`")
    return Rewrite(
        authority=fields.host("hostname"),
        regex_match="^/.*$" if full else "",
        regex_rewrite=full.replace("\\", "\\\\"),
        prefix=prefix,
    )


def _path(fields: Fields) -> tuple[str, str]:
    """Return (path, prefix): the path that replaces the whole path of a request, or the prefix that replaces the
    matched prefix. At most one of the two is not empty."""
    path = fields.fields("path")
    if path is None:
        return "", ""
    kind = path.choice("type", ("ReplaceFullPath", "ReplacePrefixMatch"))
    name = {"ReplaceFullPath": "replaceFullPath", "ReplacePrefixMatch": "replacePrefixMatch"}.get(kind, "")
    other = {"replaceFullPath": "replacePrefixMatch", "replacePrefixMatch": "replaceFullPath"}.get(name, "")
    if not name:
        path.lacks("type", what="`type` is required", hint="ReplaceFullPath or ReplacePrefixMatch")
        path.told_elsewhere("replaceFullPath", "replacePrefixMatch")
        return "", ""
    if path.has(other):
        path.error(other, f"`{other}` is set in a path of type {kind}")
    if not path.has(name):
        path.lacks(name, what=f"`{name}` is required")
    written = path.request_text(name, most=1_024)
    if written and not written.startswith("/"):
        path.error(name, f"`{name}` must begin with a slash")
    written = written or "/"
    return (written, "") if name == "replaceFullPath" else ("", written)


def _cors(fields: Fields) -> CorsPolicy:
    methods = fields.texts("allowMethods", most=32)
    for index, method in enumerate(methods):
        if method not in METHODS:
            fields.error(("allowMethods", index), f"`{method}` is not an HTTP method", did_you_mean(method, METHODS))
    for name in ("allowHeaders", "exposeHeaders"):
        for index, header in enumerate(fields.texts(name, most=256)):
            if header != "*" and not is_header(header):
                fields.error((name, index), f"`{header[:80]}` is not a header name")
    age = fields.integer("maxAge", least=1)
    return CorsPolicy(
        allow_origins=tuple(_origin(each) for each in fields.texts("allowOrigins", most=253)),
        allow_methods=methods,
        allow_headers=fields.texts("allowHeaders", most=256),
        expose_headers=fields.texts("exposeHeaders", most=256),
        max_age=_LEAST_MAX_AGE if age is None else timedelta(seconds=age),
        allow_credentials=fields.boolean("allowCredentials"),
        unmatched_preflights="IGNORE",
    )


def _origin(written: str) -> StringMatch:
    """Return the match for `written`, an allowed CORS origin. Each `*` in it matches any text: `*` alone matches every
    origin, `https://*.example.com` matches https://a.b.example.com."""
    if "*" not in written:
        return StringMatch(MatchKind.EXACT, written)
    return StringMatch(MatchKind.REGEX, ".*".join(map(re.escape, written.split("*"))))
