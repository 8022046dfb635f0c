"""A port that asks who calls, as its callers meet it."""

import grpc
import grpc.aio
import pytest

from weft.xds.access import Unauthenticated, Undecided, admitted, bearer_token


@pytest.fixture
async def ask(tmp_path):
    """Returns what `admitted` found, or the code that the call ended with."""
    found = {}

    async def authenticate(peer, token):
        if not token:
            raise Unauthenticated("no token")
        if token == "later":
            raise Undecided("nobody can be asked")
        return f"{token} from {peer.partition(':')[0]}"

    async def serve(_payload, context):
        found["token"] = bearer_token(context)
        return str(await admitted(found["authenticate"], context)).encode()

    server = grpc.aio.server()
    handler = grpc.method_handlers_generic_handler("t.T", {"T": grpc.unary_unary_rpc_method_handler(serve)})
    server.add_generic_rpc_handlers((handler,))
    server.add_insecure_port(f"unix:{tmp_path}/s")
    await server.start()

    async def asked(*metadata, authenticate=authenticate):
        found["authenticate"] = authenticate
        async with grpc.aio.insecure_channel(f"unix:{tmp_path}/s") as channel:
            try:
                return (await channel.unary_unary("/t.T/T")(b"", metadata=metadata)).decode()
            except grpc.aio.AioRpcError as error:
                return error.code()

    yield asked
    await server.stop(None)


async def test_who_proves_who_it_is_is_known_by_it(ask):
    assert await ask(("authorization", "Bearer me")) == "me from unix"
    assert await ask(("authorization", "bearer  me ")) == "me from unix"


async def test_who_does_not_is_sent_away_and_who_cannot_be_judged_may_try_again(ask):
    assert await ask() is grpc.StatusCode.UNAUTHENTICATED
    assert await ask(("authorization", "Basic me")) is grpc.StatusCode.UNAUTHENTICATED
    assert await ask(("authorization", "Bearer later")) is grpc.StatusCode.UNAVAILABLE


async def test_of_two_tokens_none_is_taken(ask):
    assert await ask(("authorization", "Bearer a"), ("authorization", "Bearer b")) is grpc.StatusCode.UNAUTHENTICATED


async def test_where_nobody_asks_nothing_is_known(ask):
    assert await ask(authenticate=None) == "None"
