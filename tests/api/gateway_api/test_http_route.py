from datetime import timedelta

import pytest

from api.gateway_api.objects import http_route, standard
from api.reading import told, value
from weft.model.gateway_api import RouteKind
from weft.model.virtual_service import MatchKind, Retries, StringMatch

TO = "backendRefs: [{name: web, port: 80}]"


def rule(text):
    return value(http_route(text)).rules[0]


def test_a_rule_is_read_with_its_defaults():
    found = rule(f"- {TO}")
    assert [(match.uri.kind, match.uri.value) for match in found.matches] == [(MatchKind.PATH_PREFIX, "/")]
    (backend,) = found.backends
    assert (backend.host, backend.port, backend.weight) == ("web.shop.svc.cluster.local", 80, 1)
    assert (found.route.name, found.line, found.route.line) == ("shop.x.0", 7, 7)
    assert found.route.origin.key.kind == "HTTPRoute"


def test_without_rules_everything_is_matched():
    found = value(standard("HTTPRoute", "parentRefs: [{name: edge}]"))
    assert found.kind is RouteKind.HTTP
    assert found.rules[0].matches[0].uri == StringMatch(MatchKind.PATH_PREFIX, "/")


def test_matches_are_exact_prefix_or_regex():
    found = rule(
        f"""
        - matches:
            - path: {{type: Exact, value: /a}}
              method: GET
              headers: [{{name: X-A, value: b}}, {{name: x-a, value: c}}, {{name: y, type: RegularExpression, value: "d+"}}]
            - path: {{type: RegularExpression, value: "/[a-z]"}}
              queryParams: [{{name: Q, value: "1"}}]
          {TO}
        """
    )
    first, second = found.matches
    assert first.uri == StringMatch(MatchKind.EXACT, "/a")
    assert first.method == StringMatch(MatchKind.EXACT, "GET")
    assert dict(first.headers) == {"x-a": StringMatch(MatchKind.EXACT, "b"), "y": StringMatch(MatchKind.REGEX, "d+")}
    assert second.uri == StringMatch(MatchKind.REGEX, "/[a-z]")
    assert dict(second.query_params) == {"Q": StringMatch(MatchKind.EXACT, "1")}


def test_reads_timeouts_of_the_request_and_of_each_try():
    found = rule(f"- {TO}\n  timeouts: {{request: 3s, backendRequest: 500ms}}").route
    assert found.timeout == timedelta(seconds=3)
    assert found.retries.per_try_timeout == timedelta(milliseconds=500)
    assert rule(f"- {TO}\n  timeouts: {{request: 0s, backendRequest: 0s}}").route.retries is None


def test_retry_codes_are_added_to_connection_errors():
    found = rule(f"- {TO}\n  retry: {{codes: [503, 429], attempts: 3, backoff: 50ms}}").route.retries
    assert found == Retries(3, None, "connect-failure,refused-stream,reset,503,429", backoff=timedelta(milliseconds=50))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "sessionPersistence: {sessionName: x}",
            "8 weft does not support `sessionPersistence` "
            "(use `consistentHash` with `httpCookie` of a DestinationRule to keep a client at one pod)",
        ),
        ("matches: [{method: get}]", "8 `get` is not an HTTP method (did you mean `GET`?)"),
        ("matches: [{path: {value: a}}]", "8 a path must begin with a slash"),
        ("matches: [{path: {value: '/a?b'}}]", "8 a path cannot contain `?` or `#` (match the query by `queryParams`)"),
        ("matches: [{path: {type: Suffix, value: /a}}]", None),
        ("matches: [{headers: [{name: 'a b', value: c}]}]", "8 `a b` is not a header name"),
        ("timeouts: {request: 1s, backendRequest: 2s}", "8 `backendRequest` must not be longer than `request`"),
        ("retry: {codes: [200]}", "8 `200` is not a status to retry on (use a status from 400 to 599)"),
        ("retry: {codes: 503}", "8 `codes` must be a list of status codes"),
        ("retries: {}", None),
    ],
)
def test_unsupported_settings_are_rejected_with_their_line(text, problem):
    found = told(http_route(f"- {TO}\n  {text}"))
    assert found == [problem] if problem else len(found) == 1


def test_replace_prefix_match_needs_a_prefix_match():
    replaced = "{type: URLRewrite, urlRewrite: {path: {type: ReplacePrefixMatch, replacePrefixMatch: /b}}}"
    text = f"- {TO}\n  filters: [{replaced}]\n  matches: [{{path: {{type: Exact, value: /a}}}}]"
    assert told(http_route(text)) == [
        "9 ReplacePrefixMatch needs a PathPrefix match, and this match has another type (use ReplaceFullPath, or match by PathPrefix)"
    ]


def test_a_rule_with_a_redirect_cannot_have_backends():
    text = f"- {TO}\n  filters: [{{type: RequestRedirect, requestRedirect: {{scheme: https}}}}]"
    assert told(http_route(text)) == ["7 a rule that redirects has no backends (remove `backendRefs`, or the redirect)"]


def test_fields_without_effect_beside_a_redirect_get_a_warning():
    redirect = "{type: RequestRedirect, requestRedirect: {scheme: https}}"
    mirror = "{type: RequestMirror, requestMirror: {backendRef: {name: b, port: 80}}}"
    text = f"- filters: [{redirect}, {mirror}]\n  timeouts: {{request: 1s}}\n  retry: {{attempts: 2}}"
    assert told(http_route(text)) == [
        "7 warning: a redirect is sent by the proxy itself: RequestMirror has no effect (remove RequestMirror)",
        "8 warning: a redirect is sent by the proxy itself: `timeouts` has no effect (remove `timeouts`)",
        "9 warning: a redirect is sent by the proxy itself: `retry` has no effect (remove `retry`)",
    ]
    assert rule(text).route.redirect is not None
