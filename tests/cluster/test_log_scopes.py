"""The log levels of the control plane over HTTP. tests/on_cluster/test_istioctl.py reads them with the real istioctl."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys

import aiohttp
import pytest

from weft.cluster.log_scopes import SCOPES, LogScopes


@pytest.fixture(autouse=True)
def levels():
    """Restore the levels of all scopes after the test."""
    loggers = [logging.getLogger("weft"), *(logging.getLogger(f"weft.{name}") for name in SCOPES)]
    before = [each.level for each in loggers]
    logging.getLogger("weft").setLevel(logging.INFO)
    yield
    for logger, level in zip(loggers, before, strict=True):
        logger.setLevel(level)


@pytest.fixture
async def ask():
    scopes = LogScopes()
    port = await scopes.listen("127.0.0.1", 0)
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:

        async def ask(method, path, body=None, **headers):
            async with session.request(method, path, json=body, headers=headers) as answer:
                return answer.status, await answer.text()

        ask.port = port
        yield ask
    await scopes.close()


async def level(ask, name):
    return json.loads((await ask("GET", f"/scopej/{name}"))[1])["output_level"]


async def test_every_scope_is_listed_with_its_level(ask):
    status, text = await ask("GET", "/scopej")
    assert status == 200
    assert {each["name"]: each["output_level"] for each in json.loads(text)} == dict.fromkeys(SCOPES, "info")
    assert await ask("GET", "/scopej/") == (200, text)
    assert "xds       info" in (await ask("GET", "/"))[1]


@pytest.mark.parametrize(
    ("word", "number"), [("debug", 10), ("info", 20), ("warn", 30), ("error", 40), ("none", logging.CRITICAL + 1)]
)
async def test_a_level_is_changed_for_one_scope(ask, word, number):
    assert (await ask("PUT", "/scopej/xds", {"name": "xds", "output_level": word}))[0] == 202
    assert logging.getLogger("weft.xds.server").getEffectiveLevel() == number
    assert (await level(ask, "xds"), await level(ask, "ca")) == (word, "info")


async def test_the_default_level_holds_for_scopes_without_their_own(ask):
    await ask("PUT", "/scopej/xds", {"output_level": "error"})
    await ask("PUT", "/scopej/default", {"output_level": "debug"})
    assert [await level(ask, name) for name in ("default", "ca", "xds")] == ["debug", "debug", "error"]


@pytest.mark.parametrize(
    ("path", "body", "words"),
    [
        ("/scopej/ads", {"output_level": "debug"}, "unknown scope 'ads'"),
        ("/scopej/xds", {"output_level": "loud"}, "the levels are debug, info, warn, error, none"),
        ("/scopej/xds", {"stack_trace_level": "debug"}, "stack traces"),
        ("/scopej/xds", {"log_callers": True}, "stack traces"),
        ("/scopej/xds", [], "not a scope"),
    ],
)
async def test_a_request_that_weft_cannot_fulfil_changes_nothing(ask, path, body, words):
    status, text = await ask("PUT", path, body)
    assert status == 400 and words in text
    assert await level(ask, "xds") == "info"


async def test_a_reset_of_stack_traces_is_accepted(ask):
    assert (await ask("PUT", "/scopej/xds", {"name": "xds", "stack_trace_level": "none"}))[0] == 202


@pytest.mark.parametrize(
    "host", ["example.org", "localhost.example.org", "localhost@example.org", "localhost:x", "[", "localhost:1/", ""]
)
async def test_requests_under_another_host_name_are_rejected(ask, host, caplog):
    assert (await ask("PUT", "/scopej/xds", {"output_level": "debug"}, Host=host))[0] == 403
    assert await level(ask, "xds") == "info"
    assert not caplog.records


@pytest.mark.parametrize("host", ["localhost", "LocalHost:9876", "127.0.0.1", "[::1]:9876"])
async def test_requests_under_a_name_of_the_loopback_interface_are_accepted(ask, host):
    assert (await ask("GET", "/scopej", Host=host))[0] == 200


async def test_the_host_header_decides_and_not_the_host_in_the_request_line(ask):
    """A proxy may put any host into the request line; browsers set the header to the name in the page's URL."""
    reader, writer = await asyncio.open_connection("127.0.0.1", ask.port)
    writer.write(b"GET http://localhost/scopej HTTP/1.1\r\nHost: example.org\r\nConnection: close\r\n\r\n")
    assert (await reader.read()).startswith(b"HTTP/1.1 403 ")
    writer.close()


async def test_long_requests_are_rejected(ask):
    assert (await ask("PUT", "/scopej/xds", {"description": "x" * 5000}))[0] == 413


def test_every_logger_of_the_control_plane_belongs_to_a_scope():
    program = (
        "import logging, weft.cluster.cluster_control, weft.inspect.own_pages\n"
        "print(*(name for name in logging.Logger.manager.loggerDict if name.startswith('weft.')))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    parts = {name.split(".")[1] for name in done.stdout.split()}
    assert parts - SCOPES.keys() == set()
    assert SCOPES.keys() - {"default"} == parts
