"""Envoy rejects no log format that weft accepts: each command is checked by a real Envoy."""

import pytest
from envoy.config.listener.v3.listener_pb2 import Listener
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.api.commands import _LOG_BARE, _LOG_PARAMETERS, log_flaw
from weft.envoy.validate import validate
from weft.model.access_log import FileLog
from weft.model.settings import Settings
from weft.translate.access_log import access_logs
from weft.translate.chains import bytes_to, chain
from weft.translate.protos import socket_address

PARAMETERS = {
    "METADATA": "ROUTE:a:b",
    "GRPC_STATUS": "NUMBER",
    "PATH": "NQ:ORIG",
    "QUERY_PARAMS": "ORIG",
    "REQUESTED_SERVER_NAME": "SNI_FIRST:HOST",
    "COMMON_DURATION": "DS_RX_BEG:DS_RX_END:us",
    "CEL": "request.url_path.contains('v1')",
    "REQ": "x-user?:path",
    "FILTER_STATE": "a:FIELD:b",
}

BAD = {
    "100%": "is not a command",
    "%START_TIME": "is not a command",
    "%req(a)%": "is not a command",
    "%REQ(a):x%": "is not a command",
    "%RESPONSE_CODES%": "Envoy has no command RESPONSE_CODES",
    "%REQ%": "needs a parameter in parentheses",
    "%REQ()%": "needs a parameter in parentheses",
    "%PROTOCOL(x)%": "accepts no parameter",
    "%RESPONSE_CODE:3%": "accepts no length",
    "%REQ(a b)%": "does not accept `a b`",
    "%REQ(a?b?c)%": "does not accept",
    "%FILTER_STATE(a:BAD)%": "does not accept",
    "%METADATA(X:a)%": "does not accept",
    "%PATH(x)%": "does not accept",
    "%GRPC_STATUS(x)%": "does not accept",
    "%CEL(a b)%": "`b` is not expected",
    "%PER_REQUEST_STATE(x)%": "Envoy has no command",
}


def listener(*lines):
    result = Listener(name="l", address=socket_address("127.0.0.1", 1))
    result.filter_chains.append(chain("", bytes_to((("nowhere", 1),), Settings())))
    result.access_log.extend(access_logs(Settings(logs=tuple(FileLog(format=line) for line in lines))))
    return result


def known():
    yield from (f"%{name}%" for name in sorted(_LOG_BARE))
    yield from (f"%{name}({PARAMETERS.get(name, 'x')})%" for name in sorted(_LOG_PARAMETERS))
    yield from ("a%%b", "%REQ(x-user):10%", "%START_TIME(%Y-%m-%dT%H:%M:%S.%3fZ)%", "%PROTOCOL()%", "plain", "%PATH:5%")


async def test_envoy_accepts_every_command_that_passes():
    lines = list(known())
    assert [flaw for line in lines if (flaw := log_flaw(line)[0])] == []
    assert await validate(listeners=[listener(*lines)]) == []


@pytest.mark.parametrize("line", BAD)
async def test_a_format_that_envoy_rejects_is_reported_with_the_reason(line):
    assert BAD[line] in log_flaw(f"before {line}")[0]
    assert await validate(listeners=[listener(line)])


def test_a_misspelled_command_gets_a_suggestion():
    assert log_flaw("%RESPONSE_CODES%")[1] == "did you mean `RESPONSE_CODE`?"


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(["%", "REQ", "(", ")", "a", ":", "5", "%%", "CEL", "PROTOCOL"]), max_size=10))
def test_any_format_gives_a_result(pieces):
    assert all(isinstance(part, str) for part in log_flaw("".join(pieces)))
