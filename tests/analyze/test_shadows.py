"""When one match takes all that another does. The cases have the plain ones: WFT0111, WFT0112."""

import pytest

from analyze.meshes import WEB, istio, said


def routes(*matches, last="redirect: {authority: b.com}"):
    first = "redirect: {authority: a.com}"
    listed = ", ".join(
        f"{{match: [{match}], {first if number == 0 else last}}}" for number, match in enumerate(matches)
    )
    return WEB + istio("VirtualService", f"{{hosts: [web], http: [{listed}]}}")


@pytest.mark.parametrize(
    ("wide", "narrow"),
    [
        ("{uri: {prefix: /a}}", "{uri: {exact: /a/b}}"),
        ("{uri: {prefix: /}}", "{uri: {regex: '/v[0-9]'}}"),
        ("{uri: {prefix: /A}, ignoreUriCase: true}", "{uri: {prefix: /a/b}}"),
        ("{headers: {x: {}}}", "{headers: {x: {exact: y}, z: {exact: q}}}"),
        ("{method: {exact: GET}}", "{method: {exact: GET}, uri: {prefix: /b}}"),
        ("{port: 80}", "{port: 80, uri: {prefix: /b}}"),
        ("{queryParams: {q: {exact: '1'}}}", "{queryParams: {q: {exact: '1'}}, uri: {exact: /x}}"),
        ("{sourceLabels: {app: web}}", "{sourceLabels: {app: web, version: v1}}"),
        ("{withoutHeaders: {x: {exact: y}}}", "{withoutHeaders: {x: {exact: y}}, method: {exact: GET}}"),
    ],
)
def test_a_route_below_a_wider_one_is_never_used(wide, narrow):
    (line,) = said(routes(wide, narrow))
    assert (
        "spec.http[1]: warning: this route is never used: http[0] (line 20) matches every request that it matches"
        in line
    )
    assert said(routes(narrow, wide)) == []


@pytest.mark.parametrize(
    ("above", "below"),
    [
        ("{uri: {exact: /a}}", "{uri: {prefix: /a}}"),
        ("{uri: {regex: '/a.*'}}", "{uri: {exact: /ab}}"),  # perhaps; nobody runs the regex here
        ("{uri: {prefix: /a}}", "{uri: {prefix: /A}, ignoreUriCase: true}"),
        ("{uri: {prefix: /a}, headers: {x: {exact: y}}}", "{uri: {prefix: /a}}"),
        ("{port: 80}", "{uri: {prefix: /a}}"),
        ("{withoutHeaders: {x: {exact: y}}}", "{uri: {prefix: /a}}"),
    ],
)
def test_a_route_that_matches_only_a_part_shadows_nothing(above, below):
    assert said(routes(above, below)) == []


def test_a_delegating_route_shadows_nothing():
    leaf = istio(
        "VirtualService", "{http: [{match: [{uri: {exact: /a/x}}], route: [{destination: {host: web}}]}]}", "leaf"
    )
    root = "{hosts: [web], http: [{match: [{uri: {prefix: /a}}], delegate: {name: leaf}}, "
    root += "{match: [{uri: {prefix: /a/b}}], route: [{destination: {host: web}}]}]}"
    assert said(WEB + leaf + istio("VirtualService", root, "root")) == []


def test_a_repeated_match_of_one_route_is_reported():
    (line,) = said(routes("{uri: {prefix: /a}}, {uri: {prefix: /a/b}}"))
    assert "spec.http[0].match[1]: warning: this match never applies: a match above it covers it" in line


def test_very_many_routes_are_still_compared_with_their_equals():
    many = [f"{{uri: {{exact: /{number}}}}}" for number in range(400)]
    (line,) = said(routes(*many, "{uri: {exact: /7}}"))
    assert "http[7]" in line
