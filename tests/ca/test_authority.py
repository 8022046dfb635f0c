from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ed25519, rsa

from ca import making
from weft.ca.authority import Authority, Terms
from weft.ca.certificates import certificate_pem
from weft.ca.csr import CsrReason, CsrRefused
from weft.ca.error import AuthorityError
from weft.ca.rotation import RotationPhase
from weft.model.identity import Identity

SHORT = Terms(lifetime=timedelta(hours=1), propagation=timedelta(minutes=10), skew=timedelta(seconds=30))


@pytest.fixture
def clock():
    return making.Clock()


def test_only_the_key_is_taken_from_a_request():
    """The CSR also requests another name, a host's name and a CA certificate."""
    key = making.p256()
    wanted = [x509.UniformResourceIdentifier("spiffe://cluster.local/ns/kube-system/sa/admin"), x509.DNSName("bank")]
    issued = Authority.in_memory(making.DOMAIN).sign(making.csr(key, name="admin", names=wanted), making.WEB)
    leaf = making.load(issued.chain[0])
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [name.value for name in names] == ["spiffe://cluster.local/ns/shop/sa/web"]
    assert not list(leaf.subject)
    assert leaf.public_key() == key.public_key()


@pytest.mark.parametrize(
    "key", [making.p256(), ed25519.Ed25519PrivateKey.generate(), rsa.generate_private_key(65_537, 2048)]
)
def test_two_workloads_verify_each_other(key):
    authority = Authority.in_memory(making.DOMAIN)
    server_key = making.p256()
    server = authority.sign(making.csr(server_key), Identity(making.DOMAIN, "shop", "payments"))
    client = authority.sign(making.csr(key), making.WEB)
    bundle = authority.bundle()
    assert making.verifies(client.chain, bundle)
    seen = making.handshake((server_key, server.chain, bundle), (key, client.chain, bundle))
    assert seen == "spiffe://cluster.local/ns/shop/sa/web"


def test_another_authority_of_the_same_name_is_not_trusted():
    chain = Authority.in_memory(making.DOMAIN).sign(making.csr(), making.WEB).chain
    assert not making.verifies(chain, Authority.in_memory(making.DOMAIN).bundle())


def test_a_certificate_lives_for_a_day_and_begins_a_little_earlier(clock):
    issued = Authority.in_memory(making.DOMAIN, clock=clock).sign(making.csr(), making.WEB)
    leaf = making.load(issued.chain[0])
    assert leaf.not_valid_after_utc == issued.expires
    assert leaf.not_valid_before_utc == issued.not_before
    assert timedelta(0) <= issued.expires - issued.issued - timedelta(hours=24) <= timedelta(seconds=1)
    assert timedelta(seconds=60) <= issued.issued - issued.not_before <= timedelta(seconds=61)


@pytest.mark.parametrize(
    ("asked", "got"),
    [
        (timedelta(hours=2), timedelta(hours=2)),
        (timedelta(seconds=1), timedelta(seconds=1)),
        (timedelta(days=5000), timedelta(days=90)),
        (timedelta.max, timedelta(days=90)),
    ],
)
def test_a_certificate_has_the_requested_lifetime_up_to_the_maximum(clock, asked, got):
    issued = Authority.in_memory(making.DOMAIN, clock=clock).sign(making.csr(), making.WEB, asked)
    assert timedelta(0) <= issued.expires - issued.issued - got <= timedelta(seconds=1)


@pytest.mark.parametrize("asked", [timedelta(0), timedelta(seconds=-5), timedelta(microseconds=1), timedelta.min])
def test_an_invalid_lifetime_is_rejected(asked):
    with pytest.raises(CsrRefused) as refused:
        Authority.in_memory(making.DOMAIN).sign(making.csr(), making.WEB, asked)
    assert refused.value.reason is CsrReason.LIFETIME


def test_no_certificate_outlives_its_signer(clock):
    terms = Terms(root_lifetime=timedelta(hours=3))
    authority = Authority.in_memory(making.DOMAIN, terms, clock=clock)
    clock.advance(hours=2)
    issued = authority.sign(making.csr(), making.WEB)
    assert issued.expires == making.load(authority.bundle()[0]).not_valid_after_utc
    clock.advance(hours=2)
    with pytest.raises(AuthorityError, match="expired on"):
        authority.sign(making.csr(), making.WEB)


@pytest.mark.parametrize("identity", [Identity("other.org", "shop", "web"), Identity(making.DOMAIN, "a/sa/b", "c")])
def test_signs_only_for_identities_of_its_own(identity):
    with pytest.raises(ValueError, match=r"not in the trust domain|is not spiffe"):
        Authority.in_memory(making.DOMAIN).sign(making.csr(), identity)


@pytest.mark.parametrize("domain", ["", "Cluster.Local", "a/b", "a b", "-", "x" * 3000])
def test_a_trust_domain_must_be_one(domain, tmp_path):
    with pytest.raises(AuthorityError, match="is not a trust domain"):
        Authority.in_memory(domain)
    with pytest.raises(AuthorityError, match="is not a trust domain"):
        Authority.open(tmp_path, domain)


def test_the_root_is_kept_across_restarts(tmp_path):
    first = Authority.open(tmp_path / "ca", making.DOMAIN)
    chain = first.sign(making.csr(), making.WEB).chain
    first.close()
    second = Authority.open(tmp_path / "ca", making.DOMAIN)
    assert making.verifies(chain, second.bundle())
    assert making.verifies(second.sign(making.csr(), making.WEB).chain, second.bundle())
    second.close()


def test_an_open_that_fails_leaves_the_directory_free(tmp_path):
    Authority.open(tmp_path / "ca", making.DOMAIN).close()
    with pytest.raises(AuthorityError, match="trust domain"):
        Authority.open(tmp_path / "ca", "other.org")
    Authority.open(tmp_path / "ca", making.DOMAIN).close()


def test_a_plugged_in_intermediate_signs_with_its_chain(tmp_path):
    root_key, key = making.p256(), making.p256()
    root = making.ca("corporate root", root_key)
    signer = making.ca("mesh", key, by=root, by_key=root_key, path_length=0)
    making.plug_in(tmp_path, certificate=signer, key=key, roots=[root], chain=[signer, root])
    authority = Authority.open(tmp_path, making.DOMAIN)
    issued = authority.sign(making.csr(), making.WEB)
    assert issued.chain[1:] == (certificate_pem(signer),)
    assert authority.bundle() == (certificate_pem(root),)
    assert making.verifies(issued.chain, authority.bundle())
    assert not making.verifies(issued.chain[:1], authority.bundle())
    assert authority.phase is RotationPhase.STEADY
    with pytest.raises(AuthorityError, match="weft does not rotate its roots"):
        authority.rotate()


class Agent:
    """A workload with a certificate and the latest roots that it has received."""

    def __init__(self, authority: Authority, name: str) -> None:
        self.identity = Identity(making.DOMAIN, "shop", name)
        self.key = making.p256()
        self.renew(authority)

    def renew(self, authority: Authority) -> None:
        """Renew the certificate as Istio's agents do: they get roots when they renew, and at no other time."""
        self.issued = authority.sign(making.csr(self.key), self.identity)
        self.roots = authority.bundle()


def both_trust(one: Agent, other: Agent, clock) -> bool:
    at = datetime.fromtimestamp(clock(), UTC)
    return making.verifies(one.issued.chain, other.roots, at=at) and making.verifies(
        other.issued.chain, one.roots, at=at
    )


@pytest.mark.parametrize("restarted", ["never", "always"])
def test_two_workloads_trust_each_other_all_through_a_rotation(tmp_path, clock, restarted):
    """They renew at 80 % of an hour, at different times, and get roots only then; the CA restarts at any time."""
    clock.advance(hours=-5)  # so that the rotation ends at the real time, which real TLS uses
    terms = Terms(lifetime=timedelta(hours=1), propagation=timedelta(hours=1), skew=timedelta(seconds=30))
    authority = Authority.open(tmp_path / "ca", making.DOMAIN, terms, clock=clock)
    old = authority.bundle()
    agents = [Agent(authority, "web"), Agent(authority, "payments")]
    authority.rotate()
    phases = []
    for minute in range(1, 301):
        clock.advance(minutes=1)
        if restarted == "always":
            authority.close()
            authority = Authority.open(tmp_path / "ca", making.DOMAIN, terms, clock=clock)
        authority.tick()
        phases.append(authority.phase)
        for place, agent in enumerate(agents):
            if (minute + 24 * place) % 48 == 0:
                agent.renew(authority)
        assert both_trust(*agents, clock), (minute, authority.phase)
    assert list(dict.fromkeys(phases)) == [RotationPhase.ANNOUNCED, RotationPhase.FADING, RotationPhase.STEADY]
    assert not set(authority.bundle()) & set(old)
    for agent in agents:
        agent.renew(authority)
    assert making.handshake(*((agent.key, agent.issued.chain, agent.roots) for agent in agents))
    authority.close()


@pytest.mark.parametrize("phase", list(RotationPhase))
def test_a_restart_goes_on_in_the_phase_it_was_in(tmp_path, clock, phase):
    authority = Authority.open(tmp_path / "ca", making.DOMAIN, SHORT, clock=clock)
    authority.sign(making.csr(), making.WEB)
    if phase is not RotationPhase.STEADY:
        authority.rotate()
    if phase is RotationPhase.FADING:
        authority.switch()
    bundle, status = authority.bundle(), authority.status()
    authority.close()
    restarted = Authority.open(tmp_path / "ca", making.DOMAIN, SHORT, clock=clock)
    assert restarted.phase is phase
    assert restarted.bundle() == bundle
    assert restarted.status() == status
    assert making.verifies(restarted.sign(making.csr(), making.WEB).chain, bundle[:1])
    restarted.close()


def test_subscribers_are_notified_of_every_phase_and_a_failing_one_affects_no_other(clock):
    authority = Authority.in_memory(making.DOMAIN, SHORT, clock=clock)
    heard = []
    authority.subscribe(lambda: 1 / 0)
    unsubscribe = authority.subscribe(lambda: heard.append((authority.phase, len(authority.bundle()))))
    authority.rotate()
    clock.advance(minutes=10)
    assert authority.tick()
    clock.advance(hours=2)
    assert authority.tick()
    assert not authority.tick()
    assert heard == [(RotationPhase.ANNOUNCED, 2), (RotationPhase.FADING, 2), (RotationPhase.STEADY, 1)]
    unsubscribe()
    unsubscribe()
    authority.rotate()
    assert len(heard) == 3


def test_signing_alone_moves_a_rotation_on(clock):
    authority = Authority.in_memory(making.DOMAIN, SHORT, clock=clock)
    authority.rotate()
    clock.advance(minutes=11)
    authority.sign(making.csr(), making.WEB)
    assert authority.phase is RotationPhase.FADING


def test_one_rotation_at_a_time(clock):
    authority = Authority.in_memory(making.DOMAIN, SHORT, clock=clock)
    authority.rotate()
    with pytest.raises(AuthorityError, match="a rotation is in progress"):
        authority.rotate()


def test_a_servers_certificate_holds_up_no_rotation(clock):
    authority = Authority.in_memory(making.DOMAIN, SHORT, clock=clock)
    authority.sign_server(making.p256().public_key(), ("localhost",), timedelta(days=30))
    authority.rotate(timedelta(0))
    authority.tick()
    clock.advance(minutes=1)
    authority.tick()
    assert authority.phase is RotationPhase.STEADY


async def test_the_end_of_the_signing_root_is_logged_once(caplog):
    clock = making.Clock()
    authority = Authority.in_memory(making.DOMAIN, clock=clock)
    authority._tell_of_ends()
    assert not caplog.records
    clock.advance(days=3640)
    for _ in range(5):
        authority._tell_of_ends()
        clock.advance(seconds=60)
    (record,) = caplog.records
    assert record.levelname == "WARNING" and "signing root" in record.message and "expires at" in record.message


async def test_bundles_come_as_they_change():
    authority = Authority.in_memory(making.DOMAIN)
    bundles = authority.bundles()
    assert await anext(bundles) == authority.bundle()
    waiting = asyncio.ensure_future(anext(bundles))
    authority.rotate(timedelta(hours=1))
    assert await waiting == authority.bundle()
    authority.switch()
    assert await anext(bundles) == authority.bundle()
    await bundles.aclose()
    assert not authority._subscribers


async def test_rotation_steps_are_taken_when_they_are_due(tmp_path):
    terms = Terms(lifetime=timedelta(seconds=1), skew=timedelta(0))
    authority = Authority.in_memory(making.DOMAIN, terms)
    running = asyncio.create_task(authority.run())
    bundles = authority.bundles()
    old = await anext(bundles)
    authority.rotate(timedelta(milliseconds=50))
    bundle = old
    while bundle[0] == old[0]:
        bundle = await anext(bundles)
    while len(bundle) > 1:
        bundle = await anext(bundles)
    assert not set(bundle) & set(old)
    running.cancel()
    await asyncio.wait([running])
    assert running.cancelled()


async def test_changed_files_are_noticed_while_it_runs(tmp_path):
    key, other_key = making.p256(), making.p256()
    root, other = making.ca("root", key), making.ca("other", other_key)
    making.plug_in(tmp_path, certificate=root, key=key, roots=[root])
    authority = Authority.open(tmp_path, making.DOMAIN)
    running = asyncio.create_task(authority.run())
    bundles = authority.bundles()
    assert len(await anext(bundles)) == 1
    making.plug_in(tmp_path, roots=[root, other])
    assert len(await anext(bundles)) == 2
    running.cancel()
    await bundles.aclose()
