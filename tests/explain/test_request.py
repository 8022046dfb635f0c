import pytest

from weft.explain.decision import Unsure
from weft.explain.request import Request, RequestHeaders, Speaks, headers_of


def test_headers_are_stored_as_in_envoy():
    headers = RequestHeaders([("Host", "a"), ("X-User", "one"), ("x-user", "two")])
    assert headers.joined("x-USER") == "one,two" and headers.values("x-user") == ["one", "two"]
    assert headers.value(":authority") == "a" and headers.has("host")
    assert headers.joined("x-none") is None and headers.value("x-none") == ""


def test_set_replaces_add_appends_remove_deletes_all():
    headers = RequestHeaders([("a", "1"), ("a", "2")])
    headers.set("A", "3")
    headers.add("a", "4")
    assert headers.values("a") == ["3", "4"]
    headers.remove("a")
    assert not headers.has("a")


def test_a_generated_header_exists_with_an_unknown_value():
    headers = RequestHeaders()
    headers.make_up("x-request-id")
    assert headers.has("x-request-id")
    with pytest.raises(Unsure, match="x-request-id"):
        headers.joined("x-request-id")
    copied = headers.copy()
    copied.set("x-request-id", "mine")
    assert copied.value("x-request-id") == "mine"
    with pytest.raises(Unsure):
        headers.value("x-request-id")


def test_a_requests_own_host_header_is_its_authority():
    assert headers_of(Request(host="a", headers=(("Host", "b"),))).values(":authority") == ["b"]
    assert Request(host="a", speaks=Speaks.HTTP2).is_http and not Request(host="a", speaks=Speaks.TLS).is_http
