"""Who may open a stream: the question, not the answer. A port that asks it gets an `Authenticate` from whoever knows
certificates and tokens; what that finds out goes along with the stream to the observer, who decides what it may see.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import grpc.aio

log = logging.getLogger("weft.xds")

Context = grpc.aio.ServicerContext[bytes, bytes]

BEARER = "bearer "


class Unauthenticated(Exception):
    """The caller does not say who it is, or cannot prove it."""


class Undecided(Exception):
    """Who must be asked about the caller does not answer. It may try again."""


# The peer as gRPC names it, and the bearer token or nothing → whatever the observer is to know of the caller. Raises
# Unauthenticated or Undecided.
Authenticate = Callable[[str, str], Awaitable[object]]


async def admitted(authenticate: Authenticate | None, context: Context) -> object:
    """What is known of the caller; None where nobody asks. Else the call ends."""
    if authenticate is None:
        return None
    peer = context.peer()
    try:
        return await authenticate(peer, bearer_token(context))
    except Unauthenticated as refused:
        log.warning("refused a stream from %s: %s", peer, refused)
        await context.abort(grpc.StatusCode.UNAUTHENTICATED, str(refused))
    except Undecided as undecided:
        log.warning("cannot decide about a stream from %s: %s", peer, undecided)
        await context.abort(grpc.StatusCode.UNAVAILABLE, str(undecided))


def bearer_token(context: Context) -> str:
    """If there is exactly one; which of two is meant cannot be known."""
    metadata: Any = context.invocation_metadata() or ()
    values = [value for name, value in metadata if name == "authorization" and isinstance(value, str)]
    tokens = [value[len(BEARER) :].strip() for value in values if value[: len(BEARER)].lower() == BEARER]
    return tokens[0] if len(tokens) == 1 else ""
