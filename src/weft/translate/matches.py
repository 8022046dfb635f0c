"""Translates the match of a route to Envoy's match. Conditions on the caller and on the port are not part of Envoy's
match: `applies` evaluates them at translation."""

from __future__ import annotations

from envoy.config.route.v3.route_components_pb2 import HeaderMatcher, QueryParameterMatcher, RouteMatch
from envoy.type.matcher.v3.metadata_pb2 import MetadataMatcher
from envoy.type.matcher.v3.string_pb2 import StringMatcher
from envoy.type.matcher.v3.value_pb2 import ValueMatcher

from weft.model.names import Labels, selects
from weft.model.virtual_service import HttpMatch, L4Match, MatchKind, StringMatch, claim_path
from weft.translate import rbac_matchers
from weft.translate.view import CallerView


def applies(match: HttpMatch | L4Match, caller: CallerView, port: int) -> bool:
    """Whether the match can ever be true for this caller on this port: its port, source namespace, source labels and
    gateways fit. Conditions on the request itself are not checked."""
    return (
        match.port in (0, port)
        and match.source_namespace in ("", caller.namespace)
        and _has_labels(match.source_labels, caller)
        and (not match.gateways or not set(caller.gateways).isdisjoint(match.gateways))
    )


def route_match(match: HttpMatch | None) -> RouteMatch:
    if match is None:
        return RouteMatch(prefix="/")
    result = RouteMatch()
    uri = match.uri or StringMatch(MatchKind.PREFIX, "/")
    match uri.kind:
        case MatchKind.EXACT:
            result.path = uri.value
        case MatchKind.PREFIX:
            result.prefix = uri.value
        case MatchKind.PATH_PREFIX if uri.value.rstrip("/"):
            result.path_separated_prefix = uri.value.rstrip("/")
        case MatchKind.REGEX:
            result.safe_regex.regex = uri.value
        case _:
            result.prefix = "/"
    if match.ignore_uri_case:
        result.case_sensitive.value = False
    for name, wanted in (
        (":method", match.method),
        (":authority", match.authority),
        (":scheme", match.scheme),
        *match.headers,
    ):
        if path := claim_path(name):
            result.dynamic_metadata.append(_claim(path, wanted))
        elif wanted is not None:
            result.headers.append(_header(name, wanted))
    for name, unwanted in match.without_headers:
        if path := claim_path(name):
            result.dynamic_metadata.append(_claim(path, unwanted))
            result.dynamic_metadata[-1].invert = True
            continue
        matcher = _header(name, unwanted)
        matcher.invert_match = True
        # A request without the header does not have the excluded value either.
        matcher.treat_missing_header_as_empty = unwanted.kind is not MatchKind.PRESENT
        result.headers.append(matcher)
    for name, wanted in match.query_params:
        if wanted.kind is MatchKind.PRESENT:
            result.query_parameters.append(QueryParameterMatcher(name=name, present_match=True))
        else:
            result.query_parameters.append(QueryParameterMatcher(name=name, string_match=string_matcher(wanted)))
    return result


def catches_all(match: RouteMatch) -> bool:
    """Whether every request fulfils `match`; routes after a route with such a match need not be sent."""
    everything = match.prefix == "/" or _matches_any_path(match) or match.safe_regex.regex in ("*", ".*")
    return everything and not match.headers and not match.query_parameters and not match.dynamic_metadata


def _matches_any_path(match: RouteMatch) -> bool:
    return match.HasField("prefix") and not match.prefix


def string_matcher(wanted: StringMatch) -> StringMatcher:
    result = StringMatcher()
    match wanted.kind:
        case MatchKind.EXACT:
            result.exact = wanted.value
        case MatchKind.PREFIX:
            result.prefix = wanted.value
        case MatchKind.REGEX:
            result.safe_regex.regex = wanted.value
        case _:
            result.safe_regex.regex = ".*"
    return result


def _claim(path: tuple[str, ...], wanted: StringMatch | None) -> MetadataMatcher:
    """Return a matcher for a claim of the verified token. The claim must be a text that `wanted` matches, or a list
    that contains such a text; if `wanted` is None, any value matches. `path`: the names of the claim and of its nested
    fields."""
    value = ValueMatcher(present_match=True)
    if wanted is not None and wanted.kind is not MatchKind.PRESENT:
        value = rbac_matchers.in_claim([ValueMatcher(string_match=string_matcher(wanted))])
    return rbac_matchers.claim(path, value)


def _header(name: str, wanted: StringMatch) -> HeaderMatcher:
    if wanted.kind is MatchKind.PRESENT:
        return HeaderMatcher(name=name, present_match=True)
    return HeaderMatcher(name=name, string_match=string_matcher(wanted))


def _has_labels(wanted: Labels, caller: CallerView) -> bool:
    return not wanted or selects(wanted, caller.labels)
