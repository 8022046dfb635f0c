from datetime import timedelta

import pytest

from api.gateway_api.objects import http_route
from api.reading import told, value
from weft.model.virtual_service import CorsPolicy, MatchKind, Redirect, Rewrite, StringMatch


def filtered(text, *, backends=True):
    to = "\n  backendRefs: [{name: web, port: 80}]" if backends else ""
    return http_route(f"- filters: [{text}]{to}")


def route(text, **how):
    return value(filtered(text, **how)).rules[0]


def test_header_values_are_plain_text_and_the_first_of_two_with_one_name_counts():
    found = route(
        "{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: A, value: 100%}, {name: a, value: b}],"
        " add: [{name: c, value: d}], remove: [e]}}"
    ).route.headers.request
    assert (found.set, found.add, found.remove) == ((("A", "100%%"),), (("c", "d"),), ("e",))


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("{scheme: https}", Redirect(scheme="https", derive_port="FROM_PROTOCOL_DEFAULT", code=302)),
        ("{hostname: a.b, statusCode: 301}", Redirect(authority="a.b", derive_port="FROM_REQUEST_PORT", code=301)),
        ("{port: 8080}", Redirect(port=8080, code=302)),
        (
            "{path: {type: ReplaceFullPath, replaceFullPath: /a}}",
            Redirect(uri="/a", derive_port="FROM_REQUEST_PORT", code=302),
        ),
        (
            "{path: {type: ReplacePrefixMatch, replacePrefixMatch: ''}}",
            Redirect(prefix="/", derive_port="FROM_REQUEST_PORT", code=302),
        ),
    ],
)
def test_redirects(written, expected):
    assert route(f"{{type: RequestRedirect, requestRedirect: {written}}}", backends=False).route.redirect == expected


def test_replace_full_path_replaces_any_path_literally():
    found = route("{type: URLRewrite, urlRewrite: {path: {type: ReplaceFullPath, replaceFullPath: '/a\\1'}}}")
    assert found.route.rewrite == Rewrite(regex_match="^/.*$", regex_rewrite="/a\\\\1")


@pytest.mark.parametrize(
    ("share", "percentage"),
    [
        ("", 100),
        (", percent: 7", 7),
        (", fraction: {numerator: 1}", 1),
        (", fraction: {numerator: 1, denominator: 8}", 12.5),
    ],
)
def test_mirrors_have_a_percentage(share, percentage):
    found = route(f"{{type: RequestMirror, requestMirror: {{backendRef: {{name: two, port: 80}}{share}}}}}")
    assert [(backend.name, share) for backend, share in found.mirrors] == [("two", percentage)]


def test_cors():
    found = route("{type: CORS, cors: {allowOrigins: ['*', 'https://*.a.b', 'https://c.d'], allowMethods: [GET]}}")
    assert found.route.cors == CorsPolicy(
        allow_origins=(
            StringMatch(MatchKind.REGEX, ".*"),
            StringMatch(MatchKind.REGEX, r"https://.*\.a\.b"),
            StringMatch(MatchKind.EXACT, "https://c.d"),
        ),
        allow_methods=("GET",),
        max_age=timedelta(seconds=5),
        unmatched_preflights="IGNORE",
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "{type: ExtensionRef, extensionRef: {group: a, kind: b, name: c}}",
            "weft does not support the filter ExtensionRef here",
        ),
        ("{type: ExternalAuth, externalAuth: {}}", "weft does not support the filter ExternalAuth here"),
        ("{type: Mirror}", "there is no filter `Mirror`"),
        ("{type: CORS, cors: {allowMethods: [get]}}", "`get` is not an HTTP method"),
        ("{type: URLRewrite, urlRewrite: {}}", "`urlRewrite` must change something"),
        ("{type: URLRewrite, urlRewrite: {path: {type: ReplaceFullPath, replaceFullPath: a}}}", "must begin with a"),
        (
            "{type: RequestMirror, requestMirror: {backendRef: {name: a, port: 1}, percent: 1, fraction: {numerator: 1}}}",
            "only one of `percent`, `fraction` may be set",
        ),
        (
            "{type: ResponseHeaderModifier, responseHeaderModifier: {set: [{name: Host, value: a}]}}",
            "`Host` can only be set on requests",
        ),
        (
            '{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: a, value: "b\\nc"}]}}',
            "the value contains a line break or a control character",
        ),
        (
            "{type: CORS, cors: {allowMethods: [GET]}}, {type: CORS, cors: {allowMethods: [GET]}}",
            "a filter of type CORS is already listed above",
        ),
    ],
)
def test_unsupported_filters_are_rejected(text, problem):
    found = told(filtered(text))
    assert len(found) == 1
    assert problem in found[0]


def test_redirects_and_rewrites_exclude_each_other():
    text = "{type: RequestRedirect, requestRedirect: {scheme: https}}, {type: URLRewrite, urlRewrite: {hostname: a.b}}"
    assert told(filtered(text, backends=False)) == [
        "7 a rule cannot both redirect and rewrite a request (keep either RequestRedirect or URLRewrite)"
    ]


@pytest.mark.parametrize(
    ("kind", "field", "body"),
    [
        ("URLRewrite", "urlRewrite", "{hostname: a.b}"),
        ("RequestRedirect", "requestRedirect", "{scheme: https}"),
        ("RequestMirror", "requestMirror", "{backendRef: {name: a, port: 1}}"),
        ("CORS", "cors", "{allowOrigins: ['*']}"),
    ],
)
def test_filters_of_backends_may_only_change_headers(kind, field, body):
    """Each problem is reported once, also if the filter has another type."""
    change = "type: RequestHeaderModifier, requestHeaderModifier: {remove: [a]}"
    for written in (f"type: {kind}, {field}: {body}", f"type: {kind}", f"{change}, {field}: {body}"):
        (line,) = told(http_route(f"- backendRefs: [{{name: web, port: 80, filters: [{{{written}}}]}}]"))
        assert line.startswith(f"7 weft does not support the filter {kind} here")
