from __future__ import annotations

import asyncio
import socket
import ssl
import stat
from pathlib import Path

import grpc
import pytest

from ca import making
from weft.ca import messages
from weft.ca.authority import Authority
from weft.ca.certificates import key_pem
from weft.ca.error import AuthorityError
from weft.ca.server import CaServer, _host
from weft.ca.service import CertificateService
from weft.ca.signed_tokens import TokenIssuer
from weft.ca.signer import REASON

CREATE = "/istio.v1.auth.IstioCertificateService/CreateCertificate"
WATCH = "/weft.ca.v1.TrustBundles/Watch"


@pytest.fixture
async def channel(served):
    credentials = grpc.ssl_channel_credentials(served.roots.encode())
    async with grpc.aio.secure_channel(served.address, credentials) as opened:
        yield opened


async def create(channel, token, csr=None, *, payload=None, metadata=None, **fields):
    if payload is None:
        csr = making.csr() if csr is None else csr
        payload = messages.CertificateRequest(csr=csr.decode(), **fields).SerializeToString()
    metadata = (("authorization", f"Bearer {token}"),) if metadata is None else metadata
    answer = await channel.unary_unary(CREATE)(payload, metadata=metadata, timeout=20)
    return list(messages.CertificateResponse.FromString(answer).cert_chain)


async def refused(channel, token, csr=None, **more):
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await create(channel, token, csr, **more)
    return error.value.code(), dict(error.value.trailing_metadata() or ()).get(REASON), error.value.details()


async def test_istios_call_returns_a_chain_that_ends_in_the_roots(served, channel):
    leaf, root = await create(channel, served.token())
    assert root == served.roots
    assert making.verifies([leaf], [root])


async def test_the_last_element_holds_all_roots_while_they_change(served, channel):
    served.authority.rotate()
    leaf, roots = await create(channel, served.token())
    assert roots == "".join(served.authority.bundle())
    assert roots.count("BEGIN CERTIFICATE") == 2
    assert making.verifies([leaf], served.authority.bundle()[:1])


async def test_a_lifetime_can_be_requested(served, channel):
    for seconds, hours in ((3600, 1), (0, 24), (2**62, 90 * 24)):
        leaf = making.load((await create(channel, served.token(), validity_duration=seconds))[0])
        life = (leaf.not_valid_after_utc - leaf.not_valid_before_utc).total_seconds()
        assert 0 <= life - hours * 3600 <= 62
    code, reason, _ = await refused(channel, served.token(), validity_duration=-1)
    assert (code, reason) == (grpc.StatusCode.INVALID_ARGUMENT, "csr-lifetime")


async def test_rejections_have_grpc_status_codes_and_reasons(served, channel):
    stranger, good = TokenIssuer().issue(making.CALLER), served.token()
    unauthenticated, invalid = grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.INVALID_ARGUMENT
    assert (await refused(channel, stranger))[:2] == (unauthenticated, "token-unknown-key")
    assert (await refused(channel, ""))[:2] == (unauthenticated, "token-missing")
    assert (await refused(channel, good, b"nonsense"))[:2] == (invalid, "csr-malformed")
    assert (await refused(channel, good, payload=b"\xff\xff\xff"))[:2] == (invalid, "request-malformed")
    assert (await refused(channel, good, payload=b"\x0a\x02\xff\xfe"))[:2] == (invalid, "request-malformed")
    for _ in range(9):
        await create(channel, good)
    assert (await refused(channel, good))[:2] == (grpc.StatusCode.RESOURCE_EXHAUSTED, "too-many-requests")


@pytest.mark.parametrize("scheme", ["", "Basic {}", "Bearer", "Token {}", "{}"])
async def test_a_token_is_sent_as_a_bearer_token(served, channel, scheme):
    metadata = (("authorization", scheme.format(served.token())),) if scheme else ()
    assert (await refused(channel, "", metadata=metadata))[1] == "token-missing"


async def test_two_tokens_in_one_request_are_rejected(served, channel):
    metadata = tuple(("authorization", f"Bearer {served.token()}") for _ in range(2))
    assert (await refused(channel, "", metadata=metadata))[1] == "token-missing"


async def test_bearer_may_be_written_in_small_letters(served, channel):
    assert await create(channel, "", metadata=(("authorization", f"bearer {served.token()}"),))


async def test_requests_that_are_too_large_are_not_read(served, channel):
    code, _, _ = await refused(channel, served.token(), payload=b"\x0a" + b"x" * 100_000)
    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
    code, _, _ = await refused(channel, "x" * 100_000)
    assert code is not grpc.StatusCode.OK
    assert await create(channel, served.token())


async def test_an_internal_error_ends_one_call_and_reveals_no_detail(served, channel, monkeypatch):
    async def fail(*_):
        raise RuntimeError("secret detail")

    monkeypatch.setattr(served.service, "create", fail)
    code, _, details = await refused(channel, served.token())
    assert code is grpc.StatusCode.INTERNAL
    assert "secret" not in details
    monkeypatch.undo()
    assert await create(channel, served.token())


async def test_roots_are_streamed_without_a_token_and_again_when_they_change(served, channel):
    stream = channel.unary_stream(WATCH)(messages.WatchRequest().SerializeToString())
    first = messages.TrustBundle.FromString(await stream.read())
    assert (first.trust_domain, tuple(first.roots)) == (making.DOMAIN, served.authority.bundle())
    served.authority.rotate()
    assert tuple(messages.TrustBundle.FromString(await stream.read()).roots) == served.authority.bundle()
    stream.cancel()


@pytest.mark.parametrize("limit", ["_MOST_WATCHERS", "_MOST_OF_ONE_HOST"])
async def test_watchers_are_bounded(served, channel, monkeypatch, limit):
    monkeypatch.setattr(f"weft.ca.server.{limit}", 1)
    first = channel.unary_stream(WATCH)(b"")
    await first.read()
    second = channel.unary_stream(WATCH)(b"")
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await second.read()
    assert error.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    first.cancel()


@pytest.mark.parametrize(
    ("peer", "host"),
    [("ipv4:10.0.0.1:40000", "ipv4:10.0.0.1"), ("ipv6:%5B::1%5D:40000", "ipv6:%5B::1%5D"), ("unix:", ""), ("", "")],
)
def test_watchers_are_counted_by_host(peer, host):
    assert _host(peer) == host


def hello(address: str, roots: str, **how) -> str | None:
    """Do a TLS handshake as an external client, and return the negotiated version."""
    host, _, port = address.rpartition(":")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=roots)
    context.set_alpn_protocols(["h2"])
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    context.maximum_version = how.get("version", ssl.TLSVersion.TLSv1_3)
    with (
        socket.create_connection((host, int(port)), timeout=10) as raw,
        context.wrap_socket(raw, server_hostname=how.get("name", host)) as connection,
    ):
        return connection.version()


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "istiod.istio-system.svc", "weft-control.weft-system.svc"])
async def test_serves_tls_by_the_names_agents_call_it(served, name):
    assert await asyncio.to_thread(hello, served.address, served.roots, name=name) == "TLSv1.3"


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion")
async def test_serves_no_other_name_no_old_tls_and_no_plaintext(served):
    with pytest.raises(ssl.SSLCertVerificationError):
        await asyncio.to_thread(hello, served.address, served.roots, name="bank.example")
    with pytest.raises((ssl.SSLError, OSError)):
        await asyncio.to_thread(hello, served.address, served.roots, version=ssl.TLSVersion.TLSv1_1)
    assert await asyncio.to_thread(hello, served.address, served.roots, version=ssl.TLSVersion.TLSv1_2) == "TLSv1.2"
    async with grpc.aio.insecure_channel(served.address) as plain:
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await create(plain, served.token())
        assert error.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_a_socket_is_its_owners_alone(served):
    path = Path(served.unix.removeprefix("unix:"))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    async with grpc.aio.insecure_channel(served.unix) as channel:
        assert await create(channel, served.token())


async def test_a_taken_address_is_an_error(served, tmp_path):
    other = CaServer(CertificateService(Authority.in_memory(making.DOMAIN), served.issuer.checker()))
    for address in (served.address, f"unix:{tmp_path}/no/ca.sock"):
        with pytest.raises(AuthorityError, match="cannot serve the CA"):
            await other.listen(address)
    await other.close()


async def test_the_server_can_use_credentials_of_another_ca(served):
    key = making.p256()
    ca = Authority.in_memory("other.org")
    issued = ca.sign_server(key.public_key(), ("localhost",))
    credentials = grpc.ssl_server_credentials([(key_pem(key).encode(), issued.chain[0].encode())])
    address = await served.server.listen("localhost:0", credentials)
    assert await asyncio.to_thread(hello, address, ca.bundle()[0]) == "TLSv1.3"
