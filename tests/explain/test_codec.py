"""Tests of the requests that Envoy's codec rejects. The generated requests of test_agreement.py compare this with
Envoy itself."""

import pytest
from envoy.extensions.filters.network.http_connection_manager.v3.http_connection_manager_pb2 import (
    HttpConnectionManager,
)

from weft.explain.codec import leave_of_te, unreadable
from weft.explain.decision import Kind
from weft.explain.listener import IncomingConnection
from weft.explain.request import Request, RequestHeaders, Speaks, headers_of
from weft.explain.rule import GuardInput
from weft.explain.walk import Walk

CONNECTION = IncomingConnection("10.0.0.1", "10.96.0.1", 80, Speaks.HTTP)


def read(method="GET", path="/", host="orders", headers=(), *, http2=False):
    seen = GuardInput(CONNECTION, headers=headers_of(Request(host, 80, method, path, tuple(headers))), http2=http2)
    return unreadable(Walk(), HttpConnectionManager(), seen), seen.headers


@pytest.mark.parametrize(
    "asked",
    [
        {"method": "FOO"},
        {"method": "get"},
        {"method": "M-SEARCH"},
        {"path": "a"},
        {"path": "*"},
        {"host": "a/b"},
        {"headers": [("x y", "1")]},
        {"headers": [("x", "a\x01")]},
        {"headers": [("connection", "x-forwarded-for")]},
        {"headers": [("connection", ",".join("abcdefghij"))]},
    ],
)
def test_invalid_http1_requests_get_400(asked):
    refusal, _ = read(**asked)
    assert (refusal.kind, refusal.status, refusal.detail) == (Kind.ANSWERED, 400, "http1.codec_error")


@pytest.mark.parametrize(
    "asked", [{"path": "a"}, {"host": "a/b"}, {"headers": [("te", "")]}, {"headers": [("te", "gzip")]}]
)
def test_invalid_http2_streams_are_reset(asked):
    refusal, _ = read(**asked, http2=True)
    assert (refusal.kind, refusal.status) == (Kind.CLOSED, 0)


@pytest.mark.parametrize(
    "asked",
    [
        {"method": "PROPFIND"},
        {"method": "FOO", "http2": True},
        {"method": "OPTIONS", "path": "*"},
        {"host": "a_b,c%41@d:80"},
        {"headers": [("te", "")]},
    ],
)
def test_valid_requests_pass(asked):
    assert read(**asked)[0] is None


def test_the_400_is_never_a_grpc_response():
    refusal, _ = read("FOO", headers=[("content-type", "application/grpc")])
    assert (refusal.status, refusal.grpc_status) == (400, 0)


def test_headers_named_by_connection_are_removed():
    sent = [("connection", "X-User, close, te"), ("x-user", "a"), ("x-env", "b"), ("te", "gzip, Trailers")]
    _, left = read(headers=sent)
    assert not left.has("x-user") and left.has("x-env") and left.value("te") == "trailers"


def test_an_upgrade_request_keeps_headers_named_by_connection():
    sent = [("connection", "upgrade, x-user"), ("upgrade", "websocket"), ("x-user", "a")]
    refusal, left = read(headers=sent)
    assert refusal is None and left.has("x-user")


@pytest.mark.parametrize(
    ("said", "left"), [("gzip", None), ("gzip, trailers", "trailers"), ("Trailers", None), ("", "")]
)
def test_te_keeps_only_trailers(said, left):
    headers = RequestHeaders([("te", said)])
    leave_of_te(headers)
    assert headers.joined("te") == left
