import pytest

from api.reading import istio, told, value
from weft.model.virtual_service import MatchKind, StringMatch, claim_path


def route(match):
    return istio("VirtualService", f"hosts: [a]\nhttp: [{{match: [{match}], route: [{{destination: {{host: a}}}}]}}]")


def match(text):
    return value(route(text)).http[0].match[0]


def test_reads_each_kind_of_match():
    assert match("{uri: {exact: /a}}").uri == StringMatch(MatchKind.EXACT, "/a")
    assert match("{uri: {prefix: /a}}").uri == StringMatch(MatchKind.PREFIX, "/a")
    assert match("{uri: {regex: /a.*}}").uri == StringMatch(MatchKind.REGEX, "/a.*")


def test_headers_are_in_lower_case_and_may_match_presence():
    assert match("{headers: {X-B: {exact: '1'}, x-a: {}}}").headers == (
        ("x-a", StringMatch(MatchKind.PRESENT)),
        ("x-b", StringMatch(MatchKind.EXACT, "1")),
    )
    assert match("{queryParams: {Page: {}}}").query_params == (("Page", StringMatch(MatchKind.PRESENT)),)


def test_an_empty_prefix_of_a_path_matches_every_path():
    assert match("{uri: {prefix: ''}}").uri == StringMatch(MatchKind.PREFIX, "")
    assert told(route("{uri: {prefix: ''}}")) == []


def test_a_star_in_without_headers_means_present():
    assert match("{withoutHeaders: {x-a: {regex: '*'}}}").without_headers == (("x-a", StringMatch(MatchKind.PRESENT)),)
    assert told(route("{withoutHeaders: {x-a: {regex: '*'}}}")) == []
    (line,) = told(route("{headers: {x-a: {regex: '*'}}}"))
    assert "`*` is not a regular expression" in line


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("@request.auth.claims.Group.id", ("Group", "id")),
        ("@request.auth.claims[https://a.b/c][d]", ("https://a.b/c", "d")),
    ],
)
def test_reads_matches_on_claims_of_a_token(name, path):
    ((found, _),) = match(f"{{headers: {{'{name}': {{exact: a}}}}}}").headers
    assert claim_path(found) == path


@pytest.mark.parametrize("name", ["@request.auth.claims", "@request.auth.claims.", "@request.auth.claims[]"])
def test_a_match_on_claims_names_a_claim(name):
    (line,) = told(route(f"{{headers: {{'{name}': {{exact: a}}}}}}"))
    assert f"`{name}` names no claim" in line


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{uri: {}}", '6 the match needs `exact`, `prefix` or `regex` (for example {prefix: "/api"})'),
        ("{scheme: {prefix: ''}}", "6 an empty prefix matches everything (leave the match out)"),
        ("{uri: {prefix: '', exact: a}}", "6 only one of `exact`, `prefix` may be set"),
        ("{uri: {exact: /a, prefix: /b}}", "6 only one of `exact`, `prefix` may be set"),
        (
            "{uri: {regex: '('}}",
            "6 `(` is not a regular expression: missing ) (Envoy uses RE2: https://github.com/google/re2/wiki/Syntax)",
        ),
        ("{uri: {prefx: /a}}", "6 unknown field `prefx` (did you mean `prefix`?)"),
        ("{uri: /a}", '6 `uri` must be a mapping, not "/a"'),
        ("{headers: {x-a: }}", "6 an item of `headers` must be a mapping, not nothing"),
        ("{headers: {a b: {}}}", "6 `a b` is not a header name"),
        (
            "{queryParams: {'': {exact: x}}}",
            '6 the name of a query parameter is empty (for example {page: {exact: "2"}})',
        ),
        (
            f"{{queryParams: {{? {'x' * 1_025} : {{}}}}}}",
            '6 the name of a query parameter is longer than 1024 bytes (for example {page: {exact: "2"}})',
        ),
        (
            "{uri: {regex: '(a{100}){11}'}}",
            "6 `(a{100}){11}` is not a regular expression: nested repetitions multiply to 1100, and RE2 accepts "
            "1000 (Envoy uses RE2: https://github.com/google/re2/wiki/Syntax)",
        ),
    ],
)
def test_reports_what_is_wrong(text, problem):
    assert problem in told(route(text))
