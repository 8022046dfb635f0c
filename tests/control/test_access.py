"""Authentication by certificates and tokens."""

import pytest

from weft.ca.signer import CaUnavailable
from weft.ca.tokens import Caller, TokenReason, TokenRefused
from weft.control.access import Access, Principal
from weft.model.identity import Identity
from weft.xds.access import Unauthenticated, Undecided

WEB = Identity("cluster.local", "shop", "web")
AGENT = Identity("cluster.local", "istio-system", "weft-node")


class Checker:
    async def check(self, token):
        if token == "bad":
            raise TokenRefused(TokenReason.SIGNATURE, "a bad signature")
        if token.startswith("unbound:"):
            caller = Caller(*token.removeprefix("unbound:").split("/"))
            raise TokenRefused(TokenReason.NOT_BOUND, "not bound to a pod", caller)
        if token == "nobodys":
            raise TokenRefused(TokenReason.NOT_BOUND, "not bound to a pod")
        if token == "later":
            raise CaUnavailable("the API server is away")
        namespace, account = token.split("/")
        return Caller(namespace, account, "pod-0", "uid-0")


def access(identity=None):
    return Access("cluster.local", Checker(), lambda peer: identity, frozenset({("istio-system", "weft-node")}))


async def test_a_certificate_alone_proves_an_account():
    assert await access(WEB)("peer", "") == Principal("shop", "web")


async def test_a_token_alone_proves_an_account_and_its_pod():
    assert await access()("peer", "shop/web") == Principal("shop", "web", "pod-0", "uid-0")


async def test_a_token_without_a_pod_proves_an_account_for_debug_requests_only():
    assert await access()("peer", "unbound:shop/web") == Principal("shop", "web", only_asks=True)
    assert not (await access()("peer", "unbound:istio-system/weft-node")).is_agent


async def test_an_agent_sends_a_certificate_and_a_token():
    token = "istio-system/weft-node"
    assert (await access(AGENT)("peer", token)).is_agent
    assert not (await access()("peer", token)).is_agent
    assert not (await access(AGENT)("peer", "")).is_agent
    assert not (await access(WEB)("peer", "shop/web")).is_agent


@pytest.mark.parametrize(
    ("identity", "token", "why"),
    [
        (None, "", "a certificate of the mesh or a bearer token is required"),
        (None, "bad", "a bad signature"),
        (WEB, "bad", "a bad signature"),
        (None, "nobodys", "not bound to a pod"),
        (WEB, "unbound:shop/web", "not bound to a pod"),
        (WEB, "shop/api", "the token is for shop/api"),
        (Identity("elsewhere.org", "shop", "web"), "", "another trust domain"),
        (Identity("elsewhere.org", "shop", "web"), "shop/web", "another trust domain"),
    ],
)
async def test_a_caller_with_no_or_contradicting_credentials_is_rejected(identity, token, why):
    with pytest.raises(Unauthenticated, match=why):
        await access(identity)("peer", token)


async def test_tokens_that_cannot_be_checked_are_undecided():
    with pytest.raises(Undecided, match="API server is away"):
        await access(WEB)("peer", "later")


def test_prints_as_account_and_pod():
    assert str(Principal("shop", "web", "pod-0")) == "shop/web (pod pod-0)"
