"""Authentication of new gRPC streams. A port that requires authentication is given an `Authenticate` function, which
checks the caller's certificate or token and returns a principal. The principal is passed to the observer, which
decides what the stream may see."""

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
    """The caller has no valid credentials."""


class Undecided(Exception):
    """The credentials cannot be checked now, because another service does not respond. The caller may try again."""


# A function of gRPC's peer string and the bearer token (or "") that returns the caller's principal, for the observer.
# It raises Unauthenticated or Undecided.
Authenticate = Callable[[str, str], Awaitable[object]]


async def admitted(authenticate: Authenticate | None, context: Context) -> object:
    """Return the caller's principal, or None if `authenticate` is None. If authentication fails, abort the call."""
    if authenticate is None:
        return None
    peer = context.peer()
    try:
        return await authenticate(peer, bearer_token(context))
    except Unauthenticated as refused:
        log.warning("rejected a stream from %s: %s", peer, refused)
        await context.abort(grpc.StatusCode.UNAUTHENTICATED, str(refused))
    except Undecided as undecided:
        log.warning("cannot authenticate a stream from %s: %s", peer, undecided)
        await context.abort(grpc.StatusCode.UNAVAILABLE, str(undecided))


def bearer_token(context: Context) -> str:
    """Return the bearer token from the call's `authorization` metadata. Return "" if the call has no token, or
    several: several are ambiguous."""
    metadata: Any = context.invocation_metadata() or ()
    values = [value for name, value in metadata if name == "authorization" and isinstance(value, str)]
    tokens = [value[len(BEARER) :].strip() for value in values if value[: len(BEARER)].lower() == BEARER]
    return tokens[0] if len(tokens) == 1 else ""
