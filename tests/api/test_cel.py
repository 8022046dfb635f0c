"""Envoy rejects no expression that weft accepts: each example is checked by a real Envoy."""

import pytest
from envoy.config.accesslog.v3.accesslog_pb2 import AccessLog
from envoy.config.listener.v3.listener_pb2 import Listener
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.api.cel import ATTRIBUTES, flaw, strangers
from weft.envoy.validate import validate
from weft.model.access_log import FileLog
from weft.model.settings import Settings
from weft.translate.access_log import access_logs
from weft.translate.chains import bytes_to, chain
from weft.translate.protos import socket_address

GOOD = [
    "response.code >= 400",
    "response.code >= 400 || connection.mtls == false",
    "'a' + 'b' == \"ab\" && !(1 + 2 * 3 < 4 % 5)",
    "has(request.headers.cookie)",
    "request.headers['x'] == 'y' ? true : false",
    "request.path.matches('a.*') && matches(request.path, r'^\\d+$')",
    "request.path.matches('\\\\d+')",
    "'a'.startsWith('b') || 'a'.endsWith('b') || 'a'.contains('b') || 'a'.size() == size('b')",
    "response.code in [200, 201,] && {'a': 1, 2: b'x',}.a == 1u",
    "--1 == 0x1F || !!true || .5 == 1e5 || null == xds.route_name",
    "request.time.getHours() == 1 && request.time.getFullYear('UTC') == 2026",
    "timestamp('2026-01-01T00:00:00Z') > request.time && duration('1s') < request.duration",
    "int('1') == 1 && double(1) == 1.0 && uint(1) == 1u && bytes('a') == b'a' && bool('true') && type(1) == int",
    "'\\x41\\u0041\\U00000041\\101\\n' == 'ä' // and so on",
    "metadata.filter_metadata['envoy.filters.http.rbac'].shadow_engine_result == 'denied'",
]

BAD = {
    "": "`the end` is not expected",
    "a b": "at column 3: `b` is not expected",
    "a = b": "'='",
    "a & b": "'&'",
    "(a": "`)` is missing",
    "a)": "`)` is not expected",
    "a ? b": "`:` is missing",
    "'open": "is not terminated",
    "'\\q'": "has an unknown escape sequence",
    "'\\ud800'": "has an unknown escape sequence",
    "'a\nb'": "is not terminated",
    "foo(1)": "no function `foo`",
    "a.lowerAscii()": "no function `lowerAscii`",
    "string(1)": "no function `string`",
    "size(1, 2)": "takes 1 argument, not 2",
    "size(a,)": "`)` is not expected",
    "[1].exists(x, x > 0)": "does not support `exists`, nor other macros over lists",
    "request.path.matches('(')": "not a regular expression",
    "has(request.headers['x'])": "needs a field",
    "has(a)": "needs a field",
    "for": "reserved word",
    "in": "`in` is not expected",
    "..a": "`.` is not expected",
    "Foo{a: 1}": "`{` is not expected",
    "99999999999999999999": "too large",
    "-!a": "`!` is not expected",
    "a" * 9_000: "longer than",
    "(" * 50 + "a" + ")" * 50: "nested deeper",
}


def listener(expression):
    result = Listener(name="l", address=socket_address("127.0.0.1", 1))
    result.filter_chains.append(chain("", bytes_to((("nowhere", 1),), Settings())))
    result.access_log.extend(access_logs(Settings(logs=(FileLog(filter=expression),))))
    return result


@pytest.mark.parametrize("expression", GOOD)
def test_valid_expressions_are_accepted(expression):
    assert flaw(expression) == ""


async def test_envoy_accepts_all_accepted_expressions():
    assert await validate(listeners=[listener(expression) for expression in GOOD]) == []


@pytest.mark.parametrize("expression", BAD, ids=lambda text: text[:20])
async def test_invalid_expressions_are_rejected_with_the_reason(expression):
    assert BAD[expression] in flaw(expression)


@pytest.mark.parametrize("expression", [text for text in BAD if 0 < len(text) < 60 and text != "Foo{a: 1}"])
async def test_envoy_rejects_all_rejected_expressions(expression):
    """Otherwise the reader would reject valid expressions."""
    assert await validate(listeners=[listener(expression)])


PIECES = [
    "a",
    "request",
    ".",
    "path",
    "(",
    ")",
    "[",
    "]",
    "'x'",
    "1",
    "+",
    "&&",
    "==",
    "!",
    "?",
    ":",
    ",",
    "in",
    "size",
]


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=12).map(" ".join) | st.text(max_size=30))
def test_any_text_gives_a_result(text):
    assert isinstance(flaw(text), str)
    strangers(text)


def test_unknown_attributes_are_reported_with_a_suggestion():
    assert strangers("response.cod >= 400 && request.headers['x'] == 'y'") == (
        ("response.cod", "did you mean `code`?"),
    )
    assert strangers("reponse.code == 200") == (("reponse", "did you mean `response`?"),)
    assert strangers("type(response.code) == int && metadata.filter_metadata.x && connection['mtls']") == ()
    assert "mtls" in ATTRIBUTES["connection"]


def test_the_filter_is_in_the_access_log_config():
    assert isinstance(listener("true").access_log[0], AccessLog)
    assert listener("true").access_log[0].filter.extension_filter.name == "envoy.access_loggers.extension_filters.cel"
