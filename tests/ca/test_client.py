from __future__ import annotations

import asyncio
from datetime import timedelta

import grpc
import pytest

from ca import making
from eventually import eventually
from weft.ca import messages
from weft.ca.authority import Authority
from weft.ca.certificates import certificate_pem
from weft.ca.client import CertificateClient
from weft.ca.server import CaServer
from weft.ca.service import CertificateService
from weft.ca.signed_tokens import TokenIssuer
from weft.ca.signer import CaUnavailable, SigningRefused


@pytest.fixture(params=["tcp", "unix"])
async def client(served, request):
    made = CertificateClient(served.address, served.roots) if request.param == "tcp" else CertificateClient(served.unix)
    yield made
    await made.close()


async def test_gets_a_certificate_without_the_root(served, client):
    issued = await client.create(served.token(), making.csr(), timedelta(hours=2))
    assert len(issued.chain) == 1
    assert making.verifies(issued.chain, served.authority.bundle())
    leaf = making.load(issued.chain[0])
    assert (issued.not_before, issued.expires) == (leaf.not_valid_before_utc, leaf.not_valid_after_utc)
    assert timedelta(hours=1, minutes=59) < issued.expires - issued.issued <= timedelta(hours=2, seconds=1)


async def test_gets_the_intermediates_of_a_plugged_in_ca(tmp_path, served):
    root_key, key = making.p256(), making.p256()
    root = making.ca("root", root_key)
    signer = making.ca("signer", key, by=root, by_key=root_key)
    making.plug_in(tmp_path / "ca", certificate=signer, key=key, roots=[root, making.ca("other", making.p256())])
    authority = Authority.open(tmp_path / "ca", making.DOMAIN)
    server = CaServer(CertificateService(authority, served.issuer.checker()))
    client = CertificateClient(await server.listen("127.0.0.1:0"), certificate_pem(root))
    issued = await client.create(served.token(), making.csr())
    assert issued.chain[1:] == (certificate_pem(signer),)
    await client.close()
    await server.close()


async def test_a_refusal_keeps_its_reason(served, client):
    with pytest.raises(SigningRefused) as refused:
        await client.create(TokenIssuer().issue(making.CALLER), making.csr())
    assert refused.value.reason == "token-unknown-key"
    with pytest.raises(SigningRefused) as refused:
        await client.create(served.token(), b"nonsense")
    assert refused.value.reason == "csr-malformed"


async def test_a_ca_that_is_away_is_not_a_refusal(tmp_path):
    client = CertificateClient(f"unix:{tmp_path}/nobody.sock")
    with pytest.raises(CaUnavailable, match="does not answer"):
        await client.create("token", making.csr())
    await client.close()
    with pytest.raises(CaUnavailable):
        await client.create("token", making.csr())


async def test_the_token_is_not_sent_to_a_ca_with_another_root(served, caplog):
    impostor = CertificateClient(served.address, Authority.in_memory(making.DOMAIN).bundle()[0])
    with pytest.raises(CaUnavailable, match="is not signed by a trusted root"):
        await impostor.create(served.token(), making.csr())
    await impostor.close()
    assert served.service.authority.issued == 0
    assert not served.service.authority.refused


async def test_the_server_name_of_the_ca_can_be_set(served):
    good = CertificateClient(served.address, served.roots, server_name="istiod.istio-system.svc")
    assert await good.create(served.token(), making.csr())
    await good.close()
    bad = CertificateClient(served.address, served.roots, server_name="bank.example")
    with pytest.raises(CaUnavailable):
        await bad.create(served.token(), making.csr())
    await bad.close()


def test_on_the_network_a_root_is_needed():
    with pytest.raises(ValueError, match="needs a root certificate"):
        CertificateClient("127.0.0.1:15012")


async def test_follows_the_roots_and_gets_certificates_all_through_a_rotation(served, client):
    bundles = client.bundles()
    assert await anext(bundles) == served.authority.bundle()
    served.authority.rotate()
    assert await anext(bundles) == served.authority.bundle()
    assert await client.create(served.token(), making.csr())
    served.authority.switch()
    assert await anext(bundles) == served.authority.bundle()
    issued = await client.create(served.token(), making.csr())
    assert making.verifies(issued.chain, served.authority.bundle()[:1])
    await bundles.aclose()


async def test_trusts_a_restarted_ca_with_a_root_that_was_announced(served):
    client = CertificateClient(served.address, served.roots)
    bundles = client.bundles()
    await anext(bundles)
    served.authority.rotate()
    await anext(bundles)
    served.authority.switch()
    await anext(bundles)
    await bundles.aclose()
    await served.server.close()
    again = CaServer(served.service)
    await again.listen(served.address)
    issued = await client.create(served.token(), making.csr())
    assert making.verifies(issued.chain, served.authority.bundle()[:1])
    await client.close()
    await again.close()


async def test_follows_the_roots_of_a_ca_that_comes_back(served, tmp_path):
    client = CertificateClient(served.unix)
    bundles = client.bundles()
    first = await anext(bundles)
    waiting = asyncio.ensure_future(anext(bundles))
    await served.server.close()
    again = CaServer(CertificateService(Authority.in_memory(making.DOMAIN), served.issuer.checker()))
    await again.listen(served.unix)
    async with asyncio.timeout(30):
        second = await waiting
    assert first != second
    await bundles.aclose()
    await client.close()
    await again.close()


@pytest.fixture
async def lied_to(tmp_path):
    """A client of a fake CA that returns whatever the test sets."""
    answers: list[bytes] = []

    async def create(_request, _context):
        return answers.pop(0)

    async def watch(_request, _context):
        yield answers.pop(0)

    server = grpc.aio.server()
    for name, method, handler in (
        (messages.CERTIFICATE_SERVICE, messages.CREATE, grpc.unary_unary_rpc_method_handler(create)),
        (messages.BUNDLE_SERVICE, messages.WATCH, grpc.unary_stream_rpc_method_handler(watch)),
    ):
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, {method: handler}),))
    address = f"unix:{tmp_path}/liar.sock"
    server.add_insecure_port(address)
    await server.start()
    client = CertificateClient(address)
    yield client, answers
    await client.close()
    await server.stop(None)


def chain(*pems: str) -> bytes:
    return messages.CertificateResponse(cert_chain=pems).SerializeToString()


async def test_responses_that_do_not_match_the_request_are_rejected(lied_to):
    client, answers = lied_to
    authority = Authority.in_memory(making.DOMAIN)
    other = authority.sign(making.csr(), making.WEB).chain[0]
    for answer in (b"", b"\xff", chain(), chain("nonsense"), chain(other, *authority.bundle())):
        answers.append(answer)
        with pytest.raises(
            CaUnavailable, match="another key" if other.encode() in answer else "not a certificate chain"
        ):
            await client.create("token", making.csr())


async def test_invalid_roots_are_ignored(lied_to):
    client, answers = lied_to
    good = Authority.in_memory(making.DOMAIN).bundle()
    answers += [b"\xff", b"", messages.TrustBundle(roots=["nonsense"]).SerializeToString()]
    answers.append(messages.TrustBundle(roots=good).SerializeToString())
    bundles = client.bundles()
    async with asyncio.timeout(30):
        assert await anext(bundles) == good
    await bundles.aclose()


async def test_a_ca_with_another_root_is_known_again_when_the_roots_are_given_anew(served):
    """The file with the roots has changed while the CA was unreachable."""
    client = CertificateClient(served.address, served.roots)
    bundles = client.bundles()
    assert await anext(bundles) == served.authority.bundle()
    following = asyncio.ensure_future(anext(bundles))
    await served.server.close()
    other = Authority.in_memory(making.DOMAIN)
    server = CaServer(CertificateService(other, served.issuer.checker()))
    await server.listen(served.address)
    with pytest.raises(CaUnavailable):
        await client.create(served.token(), making.csr())
    client.trust("".join(other.bundle()))
    issued = await client.create(served.token(), making.csr())
    assert making.verifies(issued.chain, other.bundle())
    async with asyncio.timeout(30):
        assert await following == other.bundle()
    await bundles.aclose()
    await client.close()
    await server.close()


async def test_roots_sent_by_the_ca_replace_the_initial_roots(served):
    """New initial roots are used only until the CA sends its own."""
    client = CertificateClient(served.address, served.roots)
    bundles = client.bundles()
    await anext(bundles)
    following = asyncio.ensure_future(anext(bundles))
    client.trust("".join(Authority.in_memory(making.DOMAIN).bundle()))
    assert client._roots != served.roots
    await eventually(lambda: client._roots == served.roots)
    assert not following.done()
    served.authority.rotate(timedelta(hours=1))
    async with asyncio.timeout(30):
        assert await following == served.authority.bundle()
    await bundles.aclose()
    await client.close()


async def test_a_unix_socket_needs_no_roots_and_ignores_given_ones(served):
    client = CertificateClient(served.unix)
    client.trust(served.roots)
    await client.create(served.token(), making.csr())
    await client.close()
