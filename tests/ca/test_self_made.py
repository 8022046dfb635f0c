from __future__ import annotations

from datetime import timedelta

import pytest

from ca import making
from weft.ca.error import AuthorityError
from weft.ca.rotation import RotationPhase
from weft.ca.self_made import SelfMade, signing_of
from weft.ca.store import STATE, Store, read_state

TERMS = {"skew": timedelta(seconds=5), "root_lifetime": timedelta(days=30)}
HOUR = 3600.0


@pytest.fixture
def clock():
    return making.Clock()


@pytest.fixture
def directory(tmp_path):
    return tmp_path / "ca"


class Disk:
    """A store whose disk can be full."""

    def __init__(self, directory):
        self.directory = directory
        self.full = False
        self.writes = 0
        self._store = Store(directory)

    def load(self):
        return self._store.load()

    def save(self, state):
        if self.full:
            raise OSError(28, "No space left on device")
        self.writes += 1
        self._store.save(state)

    def close(self):
        self._store.close()


@pytest.fixture
def disk(directory):
    made = Disk(directory)
    yield made
    made.close()


@pytest.fixture
def kept(disk, clock):
    return SelfMade.make("cluster.local", disk, clock(), **TERMS)


def again(disk, clock):
    return SelfMade.restore("cluster.local", disk, disk.load(), clock(), **TERMS)


def test_a_root_is_on_disk_before_it_is_used(kept, directory):
    assert read_state(directory) == kept.state
    assert kept.signing.certificate == making.load(kept.bundle()[0])


def test_the_same_root_signs_after_a_restart(kept, disk, clock):
    assert again(disk, clock).signing.certificate == kept.signing.certificate


def test_what_was_issued_is_known_after_a_crash_and_few_certificates_cost_a_write(kept, disk, clock):
    before = disk.writes
    for _ in range(100):
        kept.note(clock() + HOUR, HOUR)
        clock.advance(seconds=1)
    assert disk.writes == before + 1
    kept.note(clock() + HOUR, HOUR)
    assert again(disk, clock).state.issued_until >= clock() + HOUR


def test_the_old_root_outlives_all_that_it_signed_also_across_a_crash(kept, disk, clock):
    kept.note(clock() + HOUR, HOUR)
    kept.rotate(clock(), 60.0)
    last = clock() + HOUR
    restarted = again(disk, clock)
    clock.advance(seconds=61)
    assert restarted.tick(clock())
    assert restarted.state.phase is RotationPhase.FADING
    assert restarted.state.drop_at >= last + 5


def test_within_one_process_the_old_root_goes_as_soon_as_it_can(kept, clock):
    expires = clock() + HOUR
    kept.note(expires, HOUR)
    kept.rotate(clock(), 0.0)
    assert kept.tick(clock())
    assert kept.state.drop_at == expires + 5


def test_a_full_disk_stops_no_certificate_and_every_decision(kept, disk, clock, caplog):
    disk.full = True
    kept.note(clock() + HOUR, HOUR)
    kept.note(clock() + 2 * HOUR, HOUR)
    assert len([record for record in caplog.records if "cannot write the CA's state" in record.message]) == 1
    with pytest.raises(AuthorityError, match="cannot be written"):
        kept.rotate(clock(), 0.0)
    assert kept.state.phase is RotationPhase.STEADY
    disk.full = False
    kept.rotate(clock(), 0.0)
    disk.full = True
    assert not kept.tick(clock())
    assert kept.state.phase is RotationPhase.ANNOUNCED
    disk.full = False
    assert kept.tick(clock())
    assert kept.state.phase is RotationPhase.FADING
    assert kept.state.drop_at >= clock() + 2 * HOUR


def test_downtime_is_added_to_the_propagation_time_after_a_restart(kept, disk, clock):
    kept.rotate(clock(), 1000.0)
    for _ in range(5):
        clock.advance(seconds=100)
        assert not kept.tick(clock())
    clock.advance(days=3)
    restarted = again(disk, clock)
    assert 500 <= restarted.state.switch_at - clock() <= 560  # time since the last heartbeat is added to the wait
    assert not restarted.tick(clock())


def test_a_root_that_has_expired_is_not_used(kept, disk, clock):
    clock.advance(days=31)
    with pytest.raises(AuthorityError, match="the root in this file expired on"):
        again(disk, clock)


def test_a_root_is_for_one_trust_domain(kept, disk, clock):
    with pytest.raises(AuthorityError, match=r"for the trust domain 'cluster.local', not 'other.org'"):
        SelfMade.restore("other.org", disk, disk.load(), clock(), **TERMS)


def test_a_key_that_is_not_the_roots_is_not_used(kept, disk, clock, directory):
    other = SelfMade.make("cluster.local", None, clock(), **TERMS).state.signer.key
    path = directory / STATE
    path.write_text(path.read_text().replace(kept.state.signer.key.replace("\n", "\\n"), other.replace("\n", "\\n")))
    with pytest.raises(AuthorityError, match="the key in this file does not belong to its root") as error:
        again(disk, clock)
    assert "PRIVATE" not in str(error.value)


def test_an_invalid_root_is_an_error(kept, directory, disk):
    path = directory / STATE
    path.write_text(path.read_text().replace("BEGIN CERTIFICATE", "BEGIN NOTHING"))
    with pytest.raises(AuthorityError, match="a root or key in this file is invalid"):
        signing_of(disk.load())


def test_there_is_no_switch_without_an_announced_root(kept, clock):
    with pytest.raises(AuthorityError, match="no new root is announced"):
        kept.switch(clock())
