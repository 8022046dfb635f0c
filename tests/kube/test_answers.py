"""An API server's words, as it says them and as something between says them."""

import aiohttp
import msgspec
import pytest
from aiohttp import web

from weft.kube.answers import ApiStatus, ObjectList, decoded, read, refusal
from weft.kube.error import ApiUnavailable


@pytest.fixture
async def answered():
    """What a server answers that says this, with the body read as the client does."""
    closing = []

    async def ask(body, *, status=200, headers=None, most=1_000):
        async def say(_):
            return web.Response(body=body, status=status, headers=headers)

        served = web.Application()
        served.router.add_get("/", say)
        runner = web.AppRunner(served)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        session = aiohttp.ClientSession()
        closing.extend([session.close, runner.cleanup])
        port = site._server.sockets[0].getsockname()[1]
        answer = await session.get(f"http://127.0.0.1:{port}/")
        return answer, await read(answer, "GET /", most)

    yield ask
    for close in closing:
        await close()


async def test_a_rejection_has_the_servers_message(answered):
    said = {
        "kind": "Status",
        "reason": "Invalid",
        "message": "it is wrong",
        "details": {"causes": [{"field": "spec.ports", "message": "too many"}]},
    }
    answer, body = await answered(msgspec.json.encode(said), status=422, headers={"Retry-After": "3"})
    error = refusal(answer, body, "POST /x")
    assert (error.status, error.reason, error.message) == (422, "Invalid", "it is wrong")
    assert error.retry_after == 3
    assert "spec.ports: too many" in str(error.causes)


async def test_an_error_response_that_is_no_status_is_shown_as_text(answered):
    answer, body = await answered(b"<html>no such gateway</html>", status=502, headers={"Retry-After": "soon"})
    error = refusal(answer, body, "GET /x")
    assert (error.status, error.reason, error.message) == (502, "Bad Gateway", "<html>no such gateway</html>")
    assert error.retry_after == 0


async def test_no_more_bytes_are_read_than_allowed(answered):
    assert (await answered(b"x" * 1_000))[1] == b"x" * 1_000
    with pytest.raises(ApiUnavailable, match="a response of over 1,000 bytes"):
        await answered(b"x" * 1_001)


def test_a_list_may_have_no_items_and_a_continue_token():
    found = decoded(b'{"metadata": {"resourceVersion": "7", "continue": "there"}}', ObjectList[dict], "/x")
    assert (found.items, found.metadata.resource_version, found.metadata.continue_) == (None, "7", "there")


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"\xff", b'{"metadata": 1}'])
def test_a_response_of_another_type_is_an_error(body):
    with pytest.raises(ApiUnavailable, match="the response cannot be decoded"):
        decoded(body, ObjectList[dict], "/x")


def test_the_code_of_a_status_object_is_the_errors_status():
    assert ApiStatus(code=410, reason="Expired").error().status == 410
