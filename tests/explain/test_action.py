import pytest
from envoy.config.route.v3.route_components_pb2 import RedirectAction, Route, RouteMatch
from google.protobuf.json_format import ParseDict

from weft.explain.action import change_headers, location, rewrite
from weft.explain.decision import Unsure
from weft.explain.request import RequestHeaders


def _headers(path="/a/b?x=1", authority="orders:80", **more):
    return RequestHeaders(
        [(":path", path), (":authority", authority), (":scheme", "http"), ("x-forwarded-proto", "http"), *more.items()]
    )


@pytest.mark.parametrize(
    ("redirect", "expected"),
    [
        ({"path_redirect": "/c"}, "http://orders:80/c?x=1"),
        ({"path_redirect": "/c?own"}, "http://orders:80/c?own"),
        ({"path_redirect": "/c", "strip_query": True}, "http://orders:80/c"),
        ({"host_redirect": "there"}, "http://there/a/b?x=1"),
        ({"https_redirect": True}, "https://orders/a/b?x=1"),
        ({"scheme_redirect": "https", "port_redirect": 8443}, "https://orders:8443/a/b?x=1"),
        ({"prefix_rewrite": "/n"}, "http://orders:80/n/b?x=1"),
        ({"regex_rewrite": {"pattern": {"regex": "^/a/?"}, "substitution": "/"}}, "http://orders:80/b?x=1"),
    ],
)
def test_the_location_of_a_redirect(redirect, expected):
    assert (
        location(ParseDict(redirect, RedirectAction()), _headers(), RouteMatch(path_separated_prefix="/a")) == expected
    )


@pytest.mark.parametrize(
    ("match", "action", "path"),
    [
        ({"prefix": "/a"}, {"prefix_rewrite": "/n"}, "/n/b?x=1"),
        ({"path": "/a/b"}, {"prefix_rewrite": "/n"}, "/n?x=1"),
        ({"safe_regex": {"regex": ".*"}}, {"prefix_rewrite": "/n"}, "/n?x=1"),
        ({"path_separated_prefix": "/a"}, {"prefix_rewrite": "/"}, "//b?x=1"),
        ({"prefix": "/"}, {"regex_rewrite": {"pattern": {"regex": "[ab]"}, "substitution": "z"}}, "/z/z?x=1"),
    ],
)
def test_paths_are_rewritten_and_the_original_is_kept(match, action, path):
    headers = _headers()
    rewrite(ParseDict({"match": match, "route": action}, Route()), headers)
    assert (headers.value(":path"), headers.value("x-envoy-original-path")) == (path, "/a/b?x=1")


def test_an_empty_rewrite_is_ignored():
    headers = _headers("/")
    everything = {"regex_rewrite": {"pattern": {"regex": "/"}, "substitution": ""}}
    rewrite(ParseDict({"match": {"prefix": "/"}, "route": everything}, Route()), headers)
    assert headers.value(":path") == "/" and not headers.has("x-envoy-original-path")


def test_headers_are_removed_then_set_then_added():
    route = ParseDict(
        {
            "request_headers_to_remove": ["x-a"],
            "request_headers_to_add": [
                {"header": {"key": "x-a", "value": "100%%"}},
                {"header": {"key": "x-b", "value": "beside"}},
                {"header": {"key": "x-b", "value": "new"}, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"},
                {"header": {"key": "x-c", "value": "%REQ(x)%"}},
                {"header": {"key": "x-d", "value": "once"}, "append_action": "ADD_IF_ABSENT"},
                {"header": {"key": "x-e", "value": ""}},
            ],
        },
        Route(),
    )
    headers = _headers(**{"x-a": "old", "x-b": "old", "x-d": "there"})
    change_headers(route, headers)
    assert [headers.value(f"x-{each}") for each in "abd"] == ["100%", "new,beside", "there"] and not headers.has("x-e")
    with pytest.raises(Unsure):
        headers.value("x-c")
