import pytest

from weft.model.group import ProxyKind
from weft.model.names import labels_of
from weft.model.virtual_service import HttpMatch, L4Match, MatchKind, StringMatch
from weft.translate.matches import applies, catches_all, route_match, string_matcher
from weft.translate.view import CallerView

CALLER = CallerView(ProxyKind.SIDECAR, "shop", labels_of({"app": "frontend"}))
PRESENT = StringMatch(MatchKind.PRESENT)


def _exact(value):
    return StringMatch(MatchKind.EXACT, value)


@pytest.mark.parametrize(
    ("match", "expected"),
    [
        (HttpMatch(), True),
        (HttpMatch(port=80), True),
        (HttpMatch(port=81), False),
        (HttpMatch(source_namespace="sales"), False),
        (HttpMatch(source_labels=labels_of({"app": "frontend"})), True),
        (HttpMatch(source_labels=labels_of({"app": "batch"})), False),
        (HttpMatch(gateways=("shop/edge",)), False),
        (HttpMatch(gateways=("shop/edge", "mesh")), True),
        (L4Match(port=81), False),
    ],
)
def test_conditions_on_caller_and_port_are_evaluated_at_translation(match, expected):
    assert applies(match, CALLER, 80) == expected


def test_no_match_and_the_bare_prefix_catch_everything():
    assert catches_all(route_match(None)) and catches_all(route_match(HttpMatch(port=80)))
    assert catches_all(route_match(HttpMatch(uri=StringMatch(MatchKind.REGEX, ".*"))))
    assert not catches_all(route_match(HttpMatch(headers=(("x", PRESENT),))))
    assert not catches_all(route_match(HttpMatch(query_params=(("x", PRESENT),))))
    assert not catches_all(route_match(HttpMatch(uri=_exact("/"))))


def test_an_absent_header_is_not_the_unwanted_one():
    match = route_match(HttpMatch(without_headers=(("x-mode", _exact("dry")), ("x-internal", PRESENT))))
    value, presence = match.headers
    assert value.invert_match and value.treat_missing_header_as_empty
    assert presence.invert_match and presence.present_match and not presence.treat_missing_header_as_empty


def test_method_scheme_and_authority_are_pseudo_headers():
    match = route_match(HttpMatch(method=_exact("GET"), scheme=_exact("http"), authority=_exact("a")))
    assert [header.name for header in match.headers] == [":method", ":authority", ":scheme"]


def test_case_is_ignored_only_on_request():
    assert not route_match(HttpMatch(uri=_exact("/A"))).HasField("case_sensitive")
    assert route_match(HttpMatch(uri=_exact("/A"), ignore_uri_case=True)).case_sensitive.value is False


def test_each_kind_of_string_has_its_matcher():
    assert string_matcher(StringMatch(MatchKind.PREFIX, "a")).prefix == "a"
    assert string_matcher(StringMatch(MatchKind.REGEX, "a+")).safe_regex.regex == "a+"
    assert string_matcher(PRESENT).safe_regex.regex == ".*"


@pytest.mark.parametrize(
    ("written", "separated", "prefix"),
    [("/v1", "/v1", ""), ("/v1/", "/v1", ""), ("/", "", "/"), ("//", "", "/")],
)
def test_a_prefix_of_segments_has_no_slash_at_its_end(written, separated, prefix):
    made = route_match(HttpMatch(uri=StringMatch(MatchKind.PATH_PREFIX, written)))
    assert (made.path_separated_prefix, made.prefix) == (separated, prefix)
    assert catches_all(made) == bool(prefix)
