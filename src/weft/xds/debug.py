"""Istio's debug requests on an xDS stream, as istioctl sends them, with type URLs such as `istio.io/debug/syncz`. A
stream that begins with a debug request does not belong to a proxy: it joins no group and gets no resources.

Rule: the debugger authorizes the caller before anything is returned. Without a debugger every request is rejected.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Protocol

import grpc
import grpc.aio
from envoy.service.discovery.v3.discovery_pb2 import DiscoveryResponse
from google.protobuf.any_pb2 import Any as AnyMessage

from weft.xds.access import Context
from weft.xds.clients import Peer
from weft.xds.request import StreamRefused, XdsRequest, parse
from weft.xds.response import Dialect

log = logging.getLogger("weft.xds")

PREFIX = "istio.io/debug"


class Debugger(Protocol):
    @property
    def identifier(self) -> str:
        """The control plane's identifier in debug responses, in the form that istioctl parses."""

    def admit(self, peer: Peer) -> None:
        """Authorize the caller `peer`. Raises StreamRefused if it may not send debug requests."""

    async def answer(self, type_url: str, names: tuple[str, ...]) -> Sequence[AnyMessage]:
        """Return the resources of the response to a debug request. `names`: the resource names in the request, which
        are the arguments of the debug page. Raises StreamRefused if the type is unknown."""


def is_question(request: XdsRequest) -> bool:
    return request.type_url == PREFIX or request.type_url.startswith(f"{PREFIX}/")


async def serve_questions(
    debugger: Debugger | None, dialect: Dialect, peer: Peer, first: XdsRequest, context: Context
) -> None:
    try:
        if debugger is None:
            raise StreamRefused("debug requests are not served here")
        debugger.admit(peer)
    except StreamRefused as refused:
        caller = peer.principal or "an unknown caller"
        log.warning("%s at %s may not request %s: %s", caller, peer.address, first.type_url, refused)
        await context.abort(grpc.StatusCode.PERMISSION_DENIED, str(refused))
    if dialect is not Dialect.STATE_OF_THE_WORLD:
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "use StreamAggregatedResources")
    request: XdsRequest | None = first
    number = 0
    try:
        while request is not None:
            if not is_question(request):
                raise StreamRefused("a stream that begins with a debug request can have no other requests")
            # Istio's clients set a nonce in their first request, too. Only a request with the nonce of the last
            # response is an ACK.
            if number == 0 or request.nonce != str(number):
                number += 1
                await context.write(await _response(debugger, request, number))
            request = await _read(context)
    except StreamRefused as refused:
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(refused))


async def _response(debugger: Debugger, request: XdsRequest, number: int) -> bytes:
    response = DiscoveryResponse(type_url=request.type_url, nonce=str(number), version_info=str(number))
    response.control_plane.identifier = debugger.identifier
    response.resources.extend(await debugger.answer(request.type_url, request.names))
    return bytes(response.SerializeToString())


async def _read(context: Context) -> XdsRequest | None:
    payload: object = await context.read()
    return parse(Dialect.STATE_OF_THE_WORLD, payload)[0] if isinstance(payload, bytes) else None
