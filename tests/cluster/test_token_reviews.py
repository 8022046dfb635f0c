"""Tokens of a real API server, checked for the CA."""

from __future__ import annotations

import asyncio
import contextlib
from urllib.parse import urlsplit

import jwt
import msgspec
import pytest

from cluster.kubernetes import unique
from eventually import eventually
from kube.wire import wire
from weft.ca.signer import CaUnavailable
from weft.ca.tokens import TokenReason, TokenRefused
from weft.cluster.token_reviews import TokenReviews
from weft.kube.client import Client
from weft.kube.config import ApiConnection, load
from weft.kube.resource import PODS, SERVICE_ACCOUNTS


@pytest.fixture
async def pod(client, api_server):
    namespace = api_server.make_namespace(unique("tokens"))
    spec = {"containers": [{"name": "app", "image": "none"}]}
    return await client.create(PODS, {"metadata": {"name": "web-0"}, "spec": spec}, namespace=namespace)


async def token_of(client, pod, *, audience="istio-ca", bound=True):
    spec = {"audiences": [audience], "expirationSeconds": 600}
    if bound:
        named = {"kind": "Pod", "apiVersion": "v1", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
        spec["boundObjectRef"] = named
    manifest = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    made = await client.create(
        SERVICE_ACCOUNTS, manifest, namespace=pod["metadata"]["namespace"], name="default", subresource="token"
    )
    return made["status"]["token"]


async def refused(client, token):
    with pytest.raises(TokenRefused) as caught:
        await TokenReviews(client).check(token)
    assert not token or token not in str(caught.value)
    return caught.value.reason


async def test_a_pod_bound_token_identifies_the_pod(client, pod):
    caller = await TokenReviews(client).check(await token_of(client, pod))
    assert (caller.namespace, caller.service_account) == (pod["metadata"]["namespace"], "default")
    assert (caller.pod, caller.pod_uid) == ("web-0", pod["metadata"]["uid"])


async def test_any_other_token_is_refused_with_the_reason(client, pod):
    assert await refused(client, "") is TokenReason.MISSING
    assert await refused(client, await token_of(client, pod, audience="vault")) is TokenReason.AUDIENCE
    assert await refused(client, await token_of(client, pod, bound=False)) is TokenReason.NOT_BOUND
    good = await token_of(client, pod)
    assert await refused(client, good[:-8] + ("A" * 8)) is TokenReason.SIGNATURE


async def test_a_token_is_invalid_once_its_pod_is_deleted(client, pod):
    token = await token_of(client, pod)
    await client.delete(PODS, "web-0", namespace=pod["metadata"]["namespace"])
    async with asyncio.timeout(20):
        with contextlib.suppress(TokenRefused):
            # the API server's cache of pods is updated a little later
            await eventually(lambda: TokenReviews(client).check(token), lambda value: not value)
    assert await refused(client, token) is TokenReason.REVOKED


async def test_an_expired_token_is_distinguished_from_a_forged_one(client, api_server, pod):
    token = await token_of(client, pod)
    claims = jwt.decode(token, options={"verify_signature": False})
    for claim in ("iat", "nbf", "exp"):
        claims[claim] -= 86_400
    key, kid = (api_server.keys / "service-account.key").read_text(), jwt.get_unverified_header(token)["kid"]
    assert await refused(client, jwt.encode(claims, key, "RS256", {"kid": kid})) is TokenReason.EXPIRED


async def test_a_token_of_a_pod_that_the_watch_has_not_reported_may_be_retried(client, pod):
    token = await token_of(client, pod)
    known = {pod["metadata"]["uid"]}
    reviews = TokenReviews(client, lives=lambda uid: uid in known)
    assert (await reviews.check(token)).pod == "web-0"
    known.clear()
    with pytest.raises(CaUnavailable, match=r"web-0 is not known to this control plane"):
        await reviews.check(token)


async def test_an_unavailable_api_server_does_not_reject_a_token(client):
    async with Client(ApiConnection(server="https://127.0.0.1:1")) as nobody:
        with pytest.raises(CaUnavailable):
            await TokenReviews(nobody).check("a.b.c")


async def test_a_flood_of_tokens_leaves_room_for_other_api_requests(api_server):
    """The same client renews the Lease: without a limit, a flood of invalid tokens could end the leadership."""
    connection = load(api_server.kubeconfig)
    there = urlsplit(connection.server)
    async with (
        wire(there.hostname, there.port) as line,
        Client(msgspec.structs.replace(connection, server=f"https://127.0.0.1:{line.port}")) as client,
    ):
        line.stall()
        reviews = TokenReviews(client, waiting=100)
        flood = [asyncio.create_task(reviews.check("a.b.c")) for _ in range(101)]
        done, _ = await asyncio.wait(flood, return_when=asyncio.FIRST_COMPLETED)
        assert [str(each.exception()) for each in done] == ["too many tokens are waiting for review; try again"]
        assert not client._places.locked()
        line.flow()
        endings = await asyncio.gather(*flood, return_exceptions=True)
        assert {type(each) for each in endings} == {TokenRefused, CaUnavailable} and reviews._waiting == 0
