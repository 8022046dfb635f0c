"""The life of a certificate, with a clock and a CA that the test controls."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from identity_rig import TRUST_DOMAIN, identity
from weft.ca.authority import Authority, Terms
from weft.ca.signer import CaUnavailable, SigningRefused
from weft.node.identities import RENEW_AT, Bearer, KeptIdentity, certified, fingerprint, leads_to
from weft.node.key import Key

START = 2_000_000_000.0


class Clock:
    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> float:
        return self.now


class Signer:
    def __init__(self, clock: Clock) -> None:
        self.authority = Authority.in_memory(TRUST_DOMAIN, Terms(skew=timedelta(seconds=60)), clock=clock)
        self.error: Exception | None = None
        self.asked: list[str] = []
        self.account = "web"

    async def create(self, token, csr, lifetime=None):
        self.asked.append(token)
        if self.error is not None:
            raise self.error
        return self.authority.sign(csr, identity(self.account), lifetime)

    def bundles(self):
        return self.authority.bundles()


class Rig:
    def __init__(self, clock: Clock, signer: Signer, before=None) -> None:
        self.clock, self.signer = clock, signer
        self.published: list = []
        self.tokens = 0
        self.changed = asyncio.Event()
        self.kept = KeptIdentity(
            Bearer(name="shop/web-0", identity=identity("web"), token=self.token),
            signer,
            publish=self.published.append,
            changed=self.changed.set,
            lifetime=timedelta(hours=24),
            clock=clock,
            look=0.01,  # the test moves the clock, so it is checked often
            before=before,
        )

    async def token(self) -> str:
        self.tokens += 1
        return f"token {self.tokens}"

    async def until(self, condition) -> None:
        async with asyncio.timeout(30):
            while not condition():
                self.changed.clear()
                await self.changed.wait()

    def forward(self, **time) -> None:
        self.clock.now += timedelta(**time).total_seconds()


@pytest.fixture
async def rig():
    clock = Clock()
    made = Rig(clock, Signer(clock))
    running = asyncio.create_task(made.kept.run())
    yield made
    running.cancel()
    await asyncio.wait({running})


async def test_it_is_renewed_at_about_four_fifths_of_its_life_with_a_new_key_and_a_new_token(rig):
    await rig.until(lambda: rig.published)
    status = rig.kept.status
    assert status.is_held(rig.clock.now) and status.trouble(rig.clock.now) == ""
    life = status.not_after - START
    assert life * (RENEW_AT - 0.02) <= status.renewal - START <= life * (RENEW_AT + 0.02)
    rig.forward(hours=18)
    await asyncio.sleep(0.05)
    assert len(rig.published) == 1
    rig.forward(hours=2)
    await rig.until(lambda: len(rig.published) == 2)
    first, second = rig.published
    assert first.key.secret_pem() != second.key.secret_pem() and first.serial != second.serial
    assert rig.signer.asked == ["token 1", "token 2"]
    assert rig.kept.status.renewals == 1


async def test_workloads_that_were_signed_together_are_not_renewed_together():
    clock = Clock()
    signer = Signer(clock)
    rigs = [Rig(clock, signer) for _ in range(20)]
    tasks = [asyncio.create_task(each.kept.run()) for each in rigs]
    for each in rigs:
        await each.until(lambda each=each: each.published)
    times = {each.kept.status.renewal for each in rigs}
    for task in tasks:
        task.cancel()
    assert len(times) == 20 and max(times) - min(times) > 60


async def test_a_machine_that_slept_past_the_renewal_renews_when_it_wakes(rig):
    await rig.until(lambda: rig.published)
    rig.forward(days=3)
    await rig.until(lambda: len(rig.published) == 2)
    assert rig.kept.status.is_held(rig.clock.now)


async def test_a_clock_that_is_set_back_before_the_certificate_begins_makes_a_new_one_due(rig):
    await rig.until(lambda: rig.published)
    rig.forward(days=1)
    await rig.until(lambda: len(rig.published) == 2)
    rig.forward(hours=-12)
    await rig.until(lambda: len(rig.published) == 3)
    assert rig.kept.status.is_held(rig.clock.now)


async def test_failures_are_reported_with_start_reason_and_expiry_and_end_with_a_success(rig, caplog):
    caplog.set_level(logging.INFO)
    await rig.until(lambda: rig.published)
    rig.signer.error = CaUnavailable("nobody answers at ca:15012")
    rig.forward(hours=20)
    began = rig.clock.now
    await rig.until(lambda: rig.kept.status.error)
    status = rig.kept.status
    assert status.failing_since == began and status.is_held(rig.clock.now)
    ends = datetime.fromtimestamp(status.not_after, UTC)
    assert status.trouble(rig.clock.now) == (
        f"renewal of its certificate has failed since {datetime.fromtimestamp(began, UTC):%Y-%m-%d %H:%M:%S} UTC: "
        f"nobody answers at ca:15012; the certificate expires at {ends:%Y-%m-%d %H:%M:%S} UTC"
    )
    await rig.until(lambda: len(rig.signer.asked) >= 4)
    assert [record.levelname for record in caplog.records] == ["WARNING"]  # one line for all attempts
    rig.forward(hours=5)
    await rig.until(lambda: "its certificate expired at" in rig.kept.status.trouble(rig.clock.now))
    asked = len(rig.signer.asked)
    await rig.until(lambda: len(rig.signer.asked) > asked)
    assert [record.levelname for record in caplog.records] == ["WARNING", "ERROR"]
    assert len(rig.published) == 1  # the certificate is kept
    rig.signer.error = None
    await rig.until(lambda: len(rig.published) == 2)
    assert rig.kept.status.error == "" and rig.kept.status.failing_since == 0
    assert "has a new certificate, after" in caplog.records[-1].getMessage()


@pytest.mark.parametrize(
    "error",
    [SigningRefused("token-expired", "the token has expired"), OSError("no token"), RuntimeError("a mistake of ours")],
)
async def test_no_error_ends_the_loop_and_none_makes_it_spin(error):
    clock = Clock()
    signer = Signer(clock)
    signer.error = error
    made = Rig(clock, signer)
    running = asyncio.create_task(made.kept.run())
    await made.until(lambda: len(signer.asked) >= 2)
    begun = asyncio.get_running_loop().time()
    await made.until(lambda: len(signer.asked) >= 4)
    assert asyncio.get_running_loop().time() - begun > 0.5  # 0.4 s and 0.8 s, give or take a fifth
    assert str(error) in made.kept.status.error and "no certificate since" in made.kept.status.trouble(clock.now)
    signer.error = None
    await made.until(lambda: made.published)
    running.cancel()


async def test_a_certificate_for_another_identity_is_not_used():
    clock = Clock()
    signer = Signer(clock)
    signer.account = "api"
    made = Rig(clock, signer)
    running = asyncio.create_task(made.kept.run())
    await made.until(lambda: made.kept.status.error)
    assert "for spiffe://cluster.local/ns/shop/sa/api, not for spiffe://cluster.local/ns/shop/sa/web" in (
        made.kept.status.error
    )
    assert not made.published
    running.cancel()


def test_a_certificate_of_the_ca_must_match_the_key_and_the_clock():
    authority = Authority.in_memory(TRUST_DOMAIN)
    key = Key()
    now = datetime.now(UTC).timestamp()
    issued = authority.sign(key.request(identity("web")), identity("web"), timedelta(hours=1))
    assert certified(issued, key, identity("web"), now).chain == issued.chain
    for wrong, when in ((Key(), now), (key, now + 7200), (key, now - 7200)):
        with pytest.raises(ValueError, match="the CA returned a certificate"):
            certified(issued, wrong, identity("web"), when)
    with pytest.raises(ValueError, match="another key"):
        certified(msgspec.structs.replace(issued, chain=()), key, identity("web"), now)


async def test_a_new_signing_root_makes_a_renewal_due_soon_and_an_announced_one_does_not(rig):
    await rig.until(lambda: rig.published)
    rig.kept.trust(rig.signer.authority.bundle())
    due = rig.kept.status.renewal
    rig.signer.authority.rotate(timedelta(hours=1))
    rig.kept.trust(rig.signer.authority.bundle())
    assert rig.kept.status.renewal == due and len(rig.kept.status.roots) == 2
    rig.signer.authority.switch()
    rig.kept.trust(rig.signer.authority.bundle())
    assert rig.clock.now <= rig.kept.status.renewal <= rig.clock.now + 60
    rig.forward(seconds=61)
    await rig.until(lambda: len(rig.published) == 2)
    assert leads_to(rig.published[1].chain, rig.signer.authority.bundle()[:1])
    assert not leads_to(rig.published[0].chain, rig.signer.authority.bundle()[:1])


async def test_a_certificate_that_no_root_vouches_for_any_more_is_replaced_at_once(rig):
    await rig.until(lambda: rig.published)
    rig.kept.trust(rig.signer.authority.bundle())
    rig.signer.authority = Authority.in_memory(TRUST_DOMAIN, clock=rig.clock)
    rig.kept.trust(rig.signer.authority.bundle())
    await rig.until(lambda: len(rig.published) == 2)
    assert leads_to(rig.published[1].chain, rig.signer.authority.bundle())


async def test_nothing_that_prints_a_certificate_prints_its_key(rig):
    await rig.until(lambda: rig.published)
    held = rig.published[0]
    secret = held.key.secret_pem().decode().splitlines()[1]
    with pytest.raises(TypeError):
        msgspec.json.encode(held)
    assert secret not in f"{held!r}{held}{[held]}{rig.kept!r}{vars(rig.kept)}{rig.kept.status}"


def test_a_root_is_known_by_its_fingerprint():
    authority = Authority.in_memory(TRUST_DOMAIN)
    assert fingerprint(authority.bundle()[0]) == authority.status().certificates[0].fingerprint
    assert fingerprint("rubbish") == "unreadable"


@contextlib.asynccontextmanager
async def successor(rig, **time):
    """The next agent, some time later, with the certificate of the previous one."""
    rig.forward(**time)
    made = Rig(rig.clock, rig.signer, rig.published[0])
    made.kept.trust(rig.signer.authority.bundle())
    running = asyncio.create_task(made.kept.run())
    yield made
    running.cancel()


async def test_what_an_agent_before_had_is_used_until_it_would_have_been_renewed(rig):
    await rig.until(lambda: rig.published)
    async with successor(rig, hours=12) as made:
        await made.until(lambda: made.published)
        assert made.published == rig.published and not made.tokens and made.kept.status.renewals == 0
        assert abs(made.kept.status.renewal - (START + 0.8 * 86_400)) < 0.03 * 86_400
        made.forward(hours=8)
        await made.until(lambda: len(made.published) == 2)
        assert made.tokens == 1 and made.published[1] != rig.published[0]


async def test_what_an_agent_before_had_is_not_used_when_it_has_ended_or_its_root_has(rig):
    await rig.until(lambda: rig.published)
    rig.signer.authority = Authority.in_memory(TRUST_DOMAIN, clock=rig.clock)
    async with successor(rig) as made:
        await made.until(lambda: made.published)
        assert made.published != rig.published and made.tokens == 1
    async with successor(rig, days=2) as made:
        await made.until(lambda: made.published)
        assert made.published != rig.published and made.tokens == 1


async def test_hurry_retries_a_failed_request_at_once(monkeypatch):
    monkeypatch.setattr("weft.node.identities._FIRST_DELAY", 30.0)
    clock = Clock()
    made = Rig(clock, Signer(clock))
    made.signer.error = CaUnavailable("away")
    running = asyncio.create_task(made.kept.run())
    await made.until(lambda: made.signer.asked and made.kept.status.trouble(clock.now))
    made.signer.error = None
    made.kept.hurry()
    async with asyncio.timeout(10):  # less than the delay, even with the shortest jitter
        await made.until(lambda: made.published)
    made.kept.hurry()  # no effect without a failure
    await asyncio.sleep(0.05)
    assert len(made.published) == 1
    running.cancel()


def test_bearers_with_the_same_name_are_distinguished_by_uid():
    async def token() -> str:
        return ""

    named = Bearer(name="shop/web-0", identity=identity("web"), token=token)
    assert (named.workload, msgspec.structs.replace(named, uid="u-1").workload) == ("shop/web-0", "u-1")
