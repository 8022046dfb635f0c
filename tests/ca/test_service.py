from __future__ import annotations

import asyncio
import logging

import pytest
from cryptography import x509
from hypothesis import given, settings
from hypothesis import strategies as st

from ca import making
from weft.ca.authority import Authority
from weft.ca.error import AuthorityError
from weft.ca.service import CertificateService
from weft.ca.signed_tokens import TokenIssuer
from weft.ca.signer import CaUnavailable, SigningRefused
from weft.ca.tokens import Caller


@pytest.fixture
def issuer():
    return TokenIssuer()


@pytest.fixture
def clock():
    return making.Clock()


@pytest.fixture
def service(issuer, clock):
    return CertificateService(Authority.in_memory(making.DOMAIN), issuer.checker(), clock=clock)


async def refused(service, token, csr=None) -> SigningRefused:
    with pytest.raises(SigningRefused) as error:
        await service.create(token, making.csr() if csr is None else csr)
    return error.value


async def test_the_identity_comes_from_the_token_and_not_from_the_csr(service, issuer):
    admin = [x509.UniformResourceIdentifier("spiffe://cluster.local/ns/kube-system/sa/admin")]
    issued = await service.create(issuer.issue(making.CALLER), making.csr(names=admin))
    names = making.load(issued.chain[0]).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [name.value for name in names] == [str(making.WEB)]
    assert service.authority.issued == 1
    assert not service.authority.refused


async def test_refusals_are_counted_and_logged_without_what_was_sent(service, issuer, caplog):
    caplog.set_level(logging.DEBUG)
    good, csr = issuer.issue(making.CALLER), making.csr()
    stolen = TokenIssuer().issue(making.CALLER)
    assert (await refused(service, stolen)).reason == "token-unknown-key"
    assert (await refused(service, "")).reason == "token-missing"
    assert (await refused(service, good, b"-----BEGIN nonsense")).reason == "csr-malformed"
    assert (await refused(service, good, b"-----BEGIN nonsense")).reason == "csr-malformed"
    assert (await refused(service, good, csr + b"-----BEGIN " * 9000)).reason == "csr-too-long"
    assert service.authority.issued == 0
    assert service.authority.refused == {
        "token-unknown-key": 1,
        "token-missing": 1,
        "csr-malformed": 2,
        "csr-too-long": 1,
    }
    assert "an unknown caller" in caplog.text
    assert f"shop/web (pod {making.CALLER.pod})" in caplog.text
    for secret in (stolen, good, "nonsense", csr.decode()):
        assert secret not in caplog.text


async def test_repeated_rejections_of_a_caller_are_logged_once_a_minute(caplog):
    clock = making.Clock()
    service = CertificateService(Authority.in_memory(making.DOMAIN), TokenIssuer().checker(), clock=clock)
    for _ in range(45):
        await refused(service, "")
        clock.advance(seconds=1)
    assert service.authority.refused["token-missing"] == 45
    assert len(caplog.records) == 1
    clock.advance(seconds=15)
    await refused(service, "")
    assert len(caplog.records) == 2


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=200), st.binary(max_size=300), st.none() | st.timedeltas())
def test_random_bytes_from_the_network_are_rejected_without_a_crash(token, csr, lifetime):
    issuer = TokenIssuer()
    service = CertificateService(Authority.in_memory(making.DOMAIN), issuer.checker())
    for shown in (token, issuer.issue(making.CALLER)):
        with pytest.raises(SigningRefused):
            asyncio.run(service.create(shown, csr, lifetime))
    assert service.authority.issued == 0
    assert service.authority.refused.total() == 2


async def test_a_pod_that_is_gone_gets_nothing(service, issuer):
    token = issuer.issue(making.CALLER)
    issuer.revoke(making.CALLER.pod_uid)
    assert (await refused(service, token)).reason == "token-revoked"


async def test_a_greedy_pod_waits_and_the_others_do_not(service, issuer, clock):
    greedy, modest = issuer.issue(making.CALLER), issuer.issue(Caller("shop", "web", "web-2", "uid-2"))
    csr = making.csr()
    for _ in range(10):
        await service.create(greedy, csr)
    assert (await refused(service, greedy)).reason == "too-many-requests"
    assert await service.create(modest, csr)
    clock.advance(seconds=1)
    assert await service.create(greedy, csr)
    assert (await refused(service, greedy)).reason == "too-many-requests"
    clock.advance(hours=1)
    for _ in range(10):
        await service.create(greedy, csr)
    assert (await refused(service, greedy)).reason == "too-many-requests"


async def test_the_rate_limiter_forgets_idle_callers(service, issuer, clock, monkeypatch):
    monkeypatch.setattr("weft.ca.service._MOST_CALLERS", 3)
    for number in range(5):
        await service.create(issuer.issue(Caller("shop", "web", "web", f"uid-{number}")), making.csr())
        clock.advance(seconds=60)
    assert len(service._rate._buckets) <= 3


async def test_an_authority_that_cannot_sign_is_no_fault_of_the_caller(service, issuer, monkeypatch):
    def cannot(*_):
        raise AuthorityError("the CA's certificate expired", "replace it")

    monkeypatch.setattr(service.authority, "sign", cannot)
    with pytest.raises(CaUnavailable, match="expired"):
        await service.create(issuer.issue(making.CALLER), making.csr())
    assert service.authority.refused == {"authority-cannot-sign": 1}


async def test_bundles_yields_the_roots(service):
    bundles = service.bundles()
    assert await anext(bundles) == service.authority.bundle()
    await bundles.aclose()
