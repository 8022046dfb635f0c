"""Evaluates Envoy's matchers for strings, headers, query parameters, paths, addresses and metadata values."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from envoy.config.core.v3.address_pb2 import CidrRange
from envoy.config.route.v3.route_components_pb2 import HeaderMatcher, QueryParameterMatcher
from envoy.type.matcher.v3.metadata_pb2 import MetadataMatcher
from envoy.type.matcher.v3.path_pb2 import PathMatcher
from envoy.type.matcher.v3.string_pb2 import StringMatcher
from envoy.type.matcher.v3.value_pb2 import ValueMatcher

from weft.explain import regex
from weft.explain.decision import Unsure
from weft.explain.request import RequestHeaders

MISSING = object()  # stands for a metadata value that does not exist


def text(matcher: StringMatcher, value: str) -> bool:
    kind = matcher.WhichOneof("match_pattern")
    if kind == "safe_regex":
        return regex.matches(matcher.safe_regex.regex, value)
    wanted = getattr(matcher, kind) if kind else ""
    if matcher.ignore_case:
        wanted, value = lower(wanted), lower(value)
    match kind:
        case "exact":
            return bool(value == wanted)
        case "prefix":
            return value.startswith(wanted)
        case "suffix":
            return value.endswith(wanted)
        case "contains":
            return wanted in value
    raise Unsure(f"a string is matched by {kind or 'nothing'}, which is not simulated")


def header(matcher: HeaderMatcher, headers: RequestHeaders) -> bool:
    """Whether the headers match. If a header has several values, one that matches is enough. A missing header never
    matches a matcher for values, inverted or not, unless `treat_missing_header_as_empty` is set."""
    kind = matcher.WhichOneof("header_match_specifier")
    if kind is None or kind == "present_match":
        wanted = matcher.present_match if kind else True
        return bool((headers.has(matcher.name) == wanted) != matcher.invert_match)
    values = headers.values(matcher.name)
    if not values:
        if not matcher.treat_missing_header_as_empty:
            return False
        values = [""]
    return any(_header_value(matcher, kind, value) for value in values) != bool(matcher.invert_match)


def _header_value(matcher: HeaderMatcher, kind: str, value: str) -> bool:
    match kind:
        case "string_match":
            return text(matcher.string_match, value)
        case "exact_match":
            return bool(value == matcher.exact_match)
        case "prefix_match":
            return value.startswith(matcher.prefix_match)
        case "suffix_match":
            return value.endswith(matcher.suffix_match)
        case "contains_match":
            return matcher.contains_match in value
        case "safe_regex_match":
            return regex.matches(matcher.safe_regex_match.regex, value)
    raise Unsure(f"the header {matcher.name} is matched by {kind}, which is not simulated")


def query_parameters(target: str) -> dict[str, str]:
    """The query parameters of a request's target, not decoded. If a name occurs twice, its first value counts."""
    _, _, query = target.partition("?")
    parameters: dict[str, str] = {}
    for part in query.split("&") if query else ():
        name, _, value = part.partition("=")
        parameters.setdefault(name, value)
    return parameters


def query_parameter(matcher: QueryParameterMatcher, parameters: Mapping[str, str]) -> bool:
    if matcher.WhichOneof("query_parameter_match_specifier") == "string_match":
        return matcher.name in parameters and text(matcher.string_match, parameters[matcher.name])
    wanted = matcher.present_match if matcher.HasField("present_match") else True
    return bool((matcher.name in parameters) == wanted)


def path(matcher: PathMatcher, target: str) -> bool:
    return text(matcher.path, without_query(target))


def without_query(target: str) -> str:
    for position, character in enumerate(target):
        if character in "?#":
            return target[:position]
    return target


def address(wanted: CidrRange, given: str) -> bool:
    return _within(wanted.address_prefix, wanted.prefix_len.value, given)


def metadata(matcher: MetadataMatcher, known: Mapping[str, Any]) -> bool:
    entry: Any = known.get(matcher.filter, MISSING)
    for segment in matcher.path:
        entry = entry.get(segment.key, MISSING) if isinstance(entry, Mapping) else MISSING
    return bool(value(matcher.value, entry) != matcher.invert)


def value(matcher: ValueMatcher, candidate: Any) -> bool:
    kind = matcher.WhichOneof("match_pattern")
    match kind:
        case "present_match":
            return bool((candidate is not MISSING) == matcher.present_match)
        case "null_match":
            return candidate is None
        case "string_match":
            return isinstance(candidate, str) and text(matcher.string_match, candidate)
        case "bool_match":
            return isinstance(candidate, bool) and candidate == matcher.bool_match
        case "or_match":
            return any(value(each, candidate) for each in matcher.or_match.value_matchers)
        case "list_match" if matcher.list_match.HasField("one_of"):
            return isinstance(candidate, list) and any(value(matcher.list_match.one_of, each) for each in candidate)
    raise Unsure(f"a metadata value is matched by {kind or 'nothing'}, which is not simulated")


def lower(value: str) -> str:
    """`value` with its ASCII letters in lower case; other letters are unchanged, as in Envoy."""
    return value.lower() if value.isascii() else "".join(each.lower() if each.isascii() else each for each in value)


@lru_cache(maxsize=65536)
def _within(prefix: str, length: int, given: str) -> bool:
    try:
        ip = ipaddress.ip_address(given)
    except ValueError:
        return False
    network = ipaddress.ip_network(f"{prefix}/{length}", strict=False)
    return ip.version == network.version and ip in network
