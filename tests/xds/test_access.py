"""Authentication of callers on a port that requires it, over real gRPC."""

import grpc
import grpc.aio
import pytest

from weft.xds.access import Unauthenticated, Undecided, admitted, bearer_token


@pytest.fixture
async def ask(tmp_path):
    """Return the principal from `admitted`, or the status code of the aborted call."""
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


async def test_an_authenticated_caller_has_a_principal(ask):
    assert await ask(("authorization", "Bearer me")) == "me from unix"
    assert await ask(("authorization", "bearer  me ")) == "me from unix"


async def test_callers_without_credentials_are_rejected_and_undecided_ones_may_retry(ask):
    assert await ask() is grpc.StatusCode.UNAUTHENTICATED
    assert await ask(("authorization", "Basic me")) is grpc.StatusCode.UNAUTHENTICATED
    assert await ask(("authorization", "Bearer later")) is grpc.StatusCode.UNAVAILABLE


async def test_two_bearer_tokens_are_rejected(ask):
    assert await ask(("authorization", "Bearer a"), ("authorization", "Bearer b")) is grpc.StatusCode.UNAUTHENTICATED


async def test_without_authentication_there_is_no_principal(ask):
    assert await ask(authenticate=None) == "None"
