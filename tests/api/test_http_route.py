from datetime import timedelta

import pytest

from api.reading import istio, told, value
from weft.model.virtual_service import (
    Delegate,
    Destination,
    DirectResponse,
    Mirror,
    Redirect,
    Rewrite,
    WeightedDestination,
)

TO = "route: [{destination: {host: a}}]"


def service(route):
    return istio("VirtualService", f"hosts: [a]\nhttp:\n- {route}")


def http(route):
    return value(service(route)).http[0]


def full(name):
    return f"{name}.shop.svc.cluster.local"


def test_reads_weighted_destinations_with_full_hosts():
    found = http(
        "{name: split, timeout: 2s, route: [{destination: {host: a, subset: v1}, weight: 90}, "
        "{destination: {host: b.c, port: {number: 80}}, weight: 10}]}"
    )
    assert found.route == (
        WeightedDestination(Destination(full("a"), "v1"), 90, line=7),
        WeightedDestination(Destination("b.c", "", 80), 10, line=7),
    )
    assert (found.name, found.timeout, found.line) == ("split", timedelta(seconds=2), 7)


def test_reads_matches():
    found = http(
        f"{{match: [{{port: 80, sourceLabels: {{a: b}}, sourceNamespace: n, gateways: [g], ignoreUriCase: "
        f"true}}], {TO}}}"
    ).match
    assert (found[0].port, found[0].source_labels, found[0].source_namespace) == (80, (("a", "b"),), "n")
    assert found[0].gateways == ("shop/g",)
    assert found[0].ignore_uri_case


def test_reads_redirects_and_direct_responses():
    assert http("{redirect: {uri: /x, redirectCode: 308, scheme: https, port: 8443}}").redirect == (
        Redirect("/x", "", 8443, "", "https", 308)
    )
    assert http("{directResponse: {status: 418, body: {string: short}}}").direct_response == DirectResponse(
        418, "short"
    )
    assert http("{directResponse: {status: 200, body: {bytes: aGVsbG8=}}}").direct_response == (
        DirectResponse(200, "", b"hello")
    )
    assert http("{directResponse: {status: 304, body: {bytes: aGVsbG8=}}}").direct_response == DirectResponse(304)
    assert http("{delegate: {name: b}}").delegate == Delegate("b", "shop")
    assert http("{delegate: {name: b, namespace: sales}}").delegate == Delegate("b", "sales")


def test_reads_rewrites_and_mirrors():
    assert http(f"{{rewrite: {{uri: /n/, authority: b}}, {TO}}}").rewrite == Rewrite("/n/", "b")
    assert http(f"{{rewrite: {{uriRegexRewrite: {{match: '^/(.*)', rewrite: '/x/\\1'}}}}, {TO}}}").rewrite == (
        Rewrite(regex_match="^/(.*)", regex_rewrite="/x/\\1")
    )
    assert http(f"{{mirror: {{host: b}}, mirrorPercentage: {{value: 2.5}}, {TO}}}").mirrors == (
        Mirror(Destination(full("b")), 2.5, 7),
    )
    assert http(f"{{mirror: {{host: b}}, {TO}}}").mirrors[0].percentage == 100
    assert (
        http(f"{{mirrors: [{{destination: {{host: b}}, percentage: {{value: 0}}}}], {TO}}}").mirrors[0].percentage == 0
    )


@pytest.mark.parametrize(
    ("route", "problem"),
    [
        *(
            (text, f"7 `{name}` contains a space or a control character (percent-encode it: a space is %20)")
            for name, text in (
                ("uri", '{rewrite: {uri: "/a\\nb"}, route: [{destination: {host: a}}]}'),
                ("authority", '{rewrite: {authority: "a\\rb"}, route: [{destination: {host: a}}]}'),
                (
                    "rewrite",
                    '{rewrite: {uriRegexRewrite: {match: /, rewrite: "a b"}}, route: [{destination: {host: a}}]}',
                ),
                ("uri", '{redirect: {uri: "/a\\tb"}}'),
                ("authority", '{redirect: {authority: "a\\nb"}}'),
            )
        ),
        (
            "{match: [{uri: {prefix: /}}]}",
            "7 the http route has no action (set exactly one of `route`, `redirect`, `directResponse`, `delegate`)",
        ),
        (
            "{redirect: {uri: /x}, route: [{destination: {host: a}}]}",
            "7 the http route has `route`, `redirect` at once (set exactly one of `route`, `redirect`, "
            "`directResponse`, `delegate`)",
        ),
        ("{route: []}", "7 `route` must not be empty"),
        ("{route: [{weight: 1}]}", "7 `destination` is required"),
        ("{route: [{destination: {host: '*'}}]}", "7 `host` cannot be `*` (name one service)"),
        (
            "{route: [{destination: {host: a}}, {destination: {host: b}}]}",
            "7 the weights of the destinations add up to 0 (give at least one destination a `weight`)",
        ),
        ("{route: [{destination: {host: a}, weight: -1}]}", "7 `weight` must be between 0 and 2147483647, not -1"),
        (f"{{timeout: 0s, {TO}}}", "7 `timeout` must be at least 1ms, not 0s (leave the field out for no limit)"),
        (f"{{retires: {{}}, {TO}}}", "7 unknown field `retires` (did you mean `retries`?)"),
        ("{redirect: {uri: /x}, rewrite: {uri: /y}}", "7 a redirect cannot have `rewrite`"),
        ("{redirect: {}}", "7 `redirect` must change something (set `uri`, `authority`, `scheme` or `port`)"),
        ("{redirect: {uri: /x, redirectCode: 404}}", "7 404 is not a redirect code (use 301, 302, 303, 307 or 308)"),
        ("{directResponse: {}}", "7 `status` is required"),
        ("{directResponse: {status: 200, body: {bytes: '%'}}}", "7 `bytes` must be base64 (for text, use `string`)"),
        (f"{{rewrite: {{}}, {TO}}}", "7 `rewrite` must change something (set `uri`, `uriRegexRewrite` or `authority`)"),
        (
            f"{{rewrite: {{authority: b}}, headers: {{request: {{set: {{host: c}}}}}}, {TO}}}",
            "7 the authority is set in more than one place (keep `rewrite.authority` or one header)",
        ),
        *(
            (
                f"{{{whole}, route: [{{destination: {{host: a}}, headers: {{request: {{set: {{host: c}}}}}}}}]}}",
                f"7 warning: the authority is set by {where}: the authority that this destination sets has no effect "
                f"(set the authority in {where} or in the destination)",
            )
            for whole, where in (
                ("rewrite: {authority: b}", "`rewrite`"),
                ('headers: {request: {add: {":authority": b}}}', "the route's own `headers`"),
            )
        ),
        *(
            (
                f"{{{answer}, {name}: {written}}}",
                f"7 warning: {words} is sent by the proxy itself: `{name}` has no effect (remove `{name}`)",
            )
            for answer, words in (
                ("redirect: {uri: /x}", "a redirect"),
                ("directResponse: {status: 200}", "a direct response"),
            )
            for name, written in (
                ("timeout", "1s"),
                ("retries", "{attempts: 2}"),
                ("mirror", "{host: b}"),
                ("corsPolicy", '{allowOrigins: [{exact: "https://a.example"}]}'),
                ("mirrors", "[{destination: {host: b}}]"),
            )
        ),
        (
            f"{{mirror: {{host: b}}, mirrors: [{{destination: {{host: b}}}}], {TO}}}",
            "7 only one of `mirror`, `mirrors` may be set",
        ),
        (
            f"{{mirror: {{host: b}}, mirrorPercent: 5, {TO}}}",
            "7 warning: `mirrorPercent` is deprecated (use `mirrorPercentage: {value: …}`)",
        ),
        (
            "{directResponse: {status: 204, body: {string: said}}}",
            "7 warning: a response with status 204 has no body: `body` is not sent (remove the body)",
        ),
    ],
)
def test_reports_what_is_wrong(route, problem):
    assert told(service(route)) == [problem]


def test_several_problems_are_reported_together_with_their_lines():
    text = istio(
        "VirtualService",
        """
        hosts: [a]
        http:
        - match:
          - uri:
              prefx: /api
          route:
          - destination:
              host: a
              prot: 80
            weight: many
          timeout: 5
        """,
    )
    assert told(text) == [
        "9 unknown field `prefx` (did you mean `prefix`?)",
        "13 unknown field `prot` (did you mean `port`?)",
        '14 `weight` must be a whole number, not "many"',
        "15 `timeout` has no unit (write 5s or 5ms)",
    ]
