"""Tests of the authorization of debug pages over HTTP. test_cluster.py uses tokens of a real API server."""

from __future__ import annotations

import aiohttp
import pytest
from aiohttp.test_utils import make_mocked_request
from multidict import CIMultiDict
from yarl import URL

from control.proxy import changes
from control.test_plane import ORDERS
from weft.ca.signer import CaUnavailable
from weft.ca.tokens import Caller, TokenReason, TokenRefused
from weft.cluster.monitoring import Monitoring
from weft.control.plane import ControlPlane
from weft.inspect.attach import attach_debug
from weft.inspect.debug.access import DebugAccess, Denied, debug_routes


class Checker:
    """Accepts NAMESPACE/ACCOUNT as the token of a pod. A `?` after it means a token that is bound to no pod."""

    async def check(self, token):
        if token == "later":
            raise CaUnavailable("the API server is away")
        namespace, slash, account = token.rstrip("?").partition("/")
        if not slash:
            raise TokenRefused(TokenReason.SIGNATURE, "not authenticated")
        if token.endswith("?"):
            raise TokenRefused(TokenReason.NOT_BOUND, "not bound", Caller(namespace, account))
        return Caller(namespace, account, "pod-0", "uid-0")


@pytest.fixture
async def ask():
    plane = ControlPlane()
    plane.apply(changes(ORDERS))
    routes = debug_routes(attach_debug(plane), DebugAccess("istio-system", Checker()))
    monitoring = Monitoring(str, (), pages=routes)
    port = await monitoring.listen("127.0.0.1", 0)
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:

        async def ask(path, authorization=None, question=None, more=(), method=""):
            headers = CIMultiDict(more)
            if authorization is not None:
                headers["Authorization"] = authorization
            method = method or ("GET" if question is None else "POST")
            async with session.request(method, path, headers=headers, data=question) as answer:
                return answer.status, await answer.text(), answer.headers

        yield ask
    await monitoring.close()
    await plane.close()


PAGES = ["/debug", "/debug/adsz", "/debug/config_dump?proxyID=web-0", "/debug/registryz", "/debug/passwords"]


@pytest.mark.parametrize("path", PAGES)
@pytest.mark.parametrize("authorization", [None, "", "Bearer", "Bearer rubbish", "Basic istio-system/default"])
async def test_a_missing_or_invalid_token_gets_401(ask, path, authorization):
    status, words, headers = await ask(path, authorization)
    assert status == 401 and headers["WWW-Authenticate"] == "Bearer" and "orders" not in words


@pytest.mark.parametrize("path", PAGES)
@pytest.mark.parametrize("token", ["shop/web", "shop/default?", "istio-system-2/default", "default/istio-system"])
async def test_a_service_account_of_another_namespace_gets_403(ask, path, token):
    status, words, _ = await ask(path, f"Bearer {token}")
    assert status == 403 and "not a service account of the control plane's namespace" in words and "orders" not in words


async def test_requests_are_denied_while_tokens_cannot_be_verified(ask):
    assert (await ask("/debug/syncz", "Bearer later"))[0] == 503


@pytest.mark.parametrize("token", ["istio-system/istiod", "istio-system/default?"])
async def test_service_accounts_of_the_control_planes_namespace_may_read_pages(ask, token):
    status, words, headers = await ask("/debug/registryz", f"bearer {token}")
    assert status == 200 and "orders.shop" in words and headers["Content-Type"].startswith("application/json")
    assert (await ask("/debug", f"Bearer {token}"))[0] == 200
    assert (await ask("/debug/config_dump", f"Bearer {token}"))[0] == 400
    assert (await ask("/debug/passwords", f"Bearer {token}"))[0] == 404


async def test_no_service_account_is_admitted_if_the_namespace_is_empty():
    with pytest.raises(Denied):
        await DebugAccess("", Checker()).admit("Bearer shop/web")


async def test_an_authorized_client_may_post_a_long_question(ask):
    question = (
        '{"before": "@0", "cases": [' + ",".join(['{"where": {}, "caller": "a", "to": "http://b/"}'] * 500) + "]}"
    )
    status, said, _ = await ask("/debug/diff", "Bearer istio-system/default", question)
    assert status == 200 and '"tried":500' in said
    assert (await ask("/debug/diff", "Bearer shop/web", question))[0] == 403
    assert (await ask("/debug/diff", None, question))[0] == 401
    assert (await ask("/debug/diff", "Bearer istio-system/default", "x" * (2 << 20)))[0] == 413


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "localhost"},
        {"Host": "istiod.istio-system.svc", "X-Forwarded-For": "127.0.0.1", "Forwarded": "for=127.0.0.1"},
        {"X-Forwarded-Client-Cert": "URI=spiffe://cluster.local/ns/istio-system/sa/istiod"},
        {"X-HTTP-Method-Override": "POST", "X-Original-URL": "/healthz"},
        {"Cookie": "Authorization=Bearer istio-system/istiod", "Proxy-Authorization": "Bearer istio-system/istiod"},
    ],
)
@pytest.mark.parametrize(
    "path",
    [
        *(
            "/debug/registryz",
            "/debug//registryz",
            "/debug/registryz/",
            "/healthz/../debug/registryz",
        ),
        *("/debug%2Fregistryz", "/DEBUG/registryz", "/debug/registryz?access_token=istio-system/istiod"),
    ],
)
async def test_other_headers_and_path_spellings_do_not_bypass_authorization(ask, path, headers):
    for method in ("GET", "HEAD", "POST", "PUT", "OPTIONS"):
        status, words, _ = await ask(URL(path, encoded=True), more=headers, method=method)
        assert status in (401, 404, 405) and "orders" not in words, (method, status)


async def test_two_authorization_headers_are_rejected(ask):
    """A proxy in front of this port might use the other header."""
    good, bad = ("Authorization", "Bearer istio-system/istiod"), ("Authorization", "Bearer shop/web")
    for pair in ((good, bad), (bad, good)):
        assert (await ask("/debug/registryz", more=pair))[0] == 401


@pytest.mark.parametrize("headers", [{}, {"X-Forwarded-For": "10.0.0.1"}])
async def test_a_port_forward_reads_the_public_part_of_two_pages_without_a_token(ask, headers):
    """`istioctl version` and `remote-clusters` do. A request through a port-forward comes from loopback."""
    status, words, _ = await ask("/debug/clusterz", more=headers)
    assert status == 200 and "Kubernetes" in words
    assert (await ask("/debug/syncz", more=headers))[:2] == (200, "[]")
    assert (await ask("/debug/syncz", question="{}", more=headers))[0] == 401


@pytest.mark.parametrize(
    ("remote", "open_"),
    [
        ("127.0.0.1", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("10.0.0.1", False),
        ("::ffff:10.0.0.1", False),
        ("fe80::1%eth0", False),
        (None, False),
    ],
)
@pytest.mark.parametrize("page", ["clusterz", "syncz"])
async def test_only_loopback_reads_public_parts_without_a_token(page, remote, open_):
    plane = ControlPlane()
    (_, route, _) = debug_routes(attach_debug(plane), DebugAccess("istio-system", Checker()))
    request = make_mocked_request("GET", f"/debug/{page}", match_info={"name": page}).clone(remote=remote)
    assert ((await route.handler(request)).status == 200) is open_
    await plane.close()
