"""The pod's side, against an agent that the test controls; the real agent is in test_redirect.py."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys

import pytest

from weft.node.redirect_call import RedirectFailed, ask


@contextlib.asynccontextmanager
async def agent(path, *answers: bytes):
    """Answer one call after the other; yield the list of received lines."""
    asked, left = [], list(answers)

    async def serve(reader, writer):
        asked.append(await reader.readline())
        writer.write(left.pop(0))
        writer.close()

    server = await asyncio.start_unix_server(serve, path)
    yield asked
    server.close()


async def test_a_successful_response_ends_the_call(tmp_path):
    async with agent(tmp_path / "redirect", b"{}\n") as asked:
        await asyncio.to_thread(ask, tmp_path / "redirect", ("-p", "15001"), timeout=5)
    assert asked == [b'{"arguments":["-p","15001"]}\n']


async def test_a_rejection_is_final_and_has_its_reason(tmp_path):
    async with agent(tmp_path / "redirect", b'{"error": "not you", "hint": "be another"}\n') as asked:
        with pytest.raises(RedirectFailed, match=r"reports: not you \(be another\)"):
            await asyncio.to_thread(ask, tmp_path / "redirect", (), timeout=5)
    assert len(asked) == 1


async def test_the_request_is_retried_if_the_agent_breaks_off(tmp_path):
    async with agent(tmp_path / "redirect", b"", b"nonsense\n", b"{}\n") as asked:
        await asyncio.to_thread(ask, tmp_path / "redirect", (), timeout=5)
    assert len(asked) == 3


async def test_an_agent_that_never_responds_is_a_failure(tmp_path):
    async with agent(tmp_path / "redirect", *[b""] * 100):
        with pytest.raises(RedirectFailed, match="without a response"):
            await asyncio.to_thread(ask, tmp_path / "redirect", (), timeout=0.5)
    silent = await asyncio.start_unix_server(lambda reader, writer: None, tmp_path / "silent")
    with pytest.raises(RedirectFailed, match="no response from the node's agent"):
        await asyncio.to_thread(ask, tmp_path / "silent", (), timeout=0.2)
    silent.close()


def test_a_pod_waits_for_it_so_it_loads_next_to_nothing():
    code = "import sys, weft.node.redirect_call; print([m for m in ('grpc', 'asyncio', 'ssl', 'aiohttp') if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={"PYTHONPATH": ":".join(sys.path)}
    )
    assert done.stdout == "[]\n", done.stderr
