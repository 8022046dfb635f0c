"""Authorize requests for the debug pages over HTTP on a cluster: only service accounts of the control plane's
namespace may read the pages, authenticated by a token that the API server verifies. Other requests get a 401 or a
403.

Rule: nothing is computed for an unauthorized request. This includes requests from loopback, because those of a
port-forward come from there. The only exception are the public parts of pages (`Debug.public`), which a request from
loopback gets if it has no token: istioctl reads them through a port-forward.
"""

from __future__ import annotations

import logging
from ipaddress import IPv6Address, ip_address

from aiohttp import web

from weft.ca.signer import CaUnavailable
from weft.ca.tokens import Caller, TokenChecker, TokenReason, TokenRefused
from weft.inspect.debug.pages import Debug, DebugResponse

log = logging.getLogger(__name__)

BEARER = "bearer "


class Denied(Exception):
    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class DebugAccess:
    def __init__(self, namespace: str, checker: TokenChecker) -> None:
        self._namespace, self._checker = namespace, checker

    async def admit(self, authorization: str) -> Caller:
        """Verify the token in an Authorization header and return its service account. Raises Denied."""
        if authorization[: len(BEARER)].lower() != BEARER:
            raise Denied(401, "send a bearer token of a service account, for the audience istio-ca")
        try:
            caller = await self._checker.check(authorization[len(BEARER) :].strip())
        except TokenRefused as refused:
            # A token of `kubectl create token` is not bound to a pod. It is accepted here, because the pages give no
            # workload identity.
            if refused.reason is not TokenReason.NOT_BOUND or refused.caller is None:
                raise Denied(401, str(refused)) from refused
            caller = refused.caller
        except CaUnavailable as unavailable:
            raise Denied(503, str(unavailable)) from unavailable
        if caller.namespace != self._namespace:
            raise Denied(403, f"{caller} is not a service account of the control plane's namespace, {self._namespace}")
        return caller


def debug_routes(debug: Debug, access: DebugAccess) -> tuple[web.RouteDef, ...]:
    async def serve(request: web.Request) -> web.Response:
        shown = request.headers.getall("Authorization", [])
        if not shown and request.method == "GET" and _is_loopback(request.remote):
            public = await debug.public(request.match_info.get("name", ""))
            if public is not None:
                return _response(public)
        try:
            # Two Authorization headers are ambiguous, so neither counts.
            await access.admit(shown[0] if len(shown) == 1 else "")
        except Denied as denied:
            log.warning("denied %s access to %s: %s", request.remote, request.path[:200], denied)
            headers = {"WWW-Authenticate": "Bearer"} if denied.status == 401 else {}
            return web.Response(status=denied.status, text=f"{denied}\n", headers=headers)
        return await debug_page(debug, request)

    return web.get("/debug", serve), web.get("/debug/{name}", serve), web.post("/debug/{name}", serve)


def _is_loopback(remote: str | None) -> bool:
    address = ip_address(remote or "::")
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).is_loopback


async def debug_page(debug: Debug, request: web.Request) -> web.Response:
    """Return the debug page that an authorized request names. A question that is too long for a URL is sent as the body
    of a POST. A POST changes nothing, like a GET."""
    query = dict(request.query)
    if request.method == "POST":
        query["question"] = (await request.read()).decode(errors="replace")
    return _response(await debug.answer(request.match_info.get("name", ""), query))


def _response(answer: DebugResponse) -> web.Response:
    return web.Response(status=answer.status, body=answer.body, content_type=answer.content_type)
