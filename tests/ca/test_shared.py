from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from ca import making
from weft.ca.error import AuthorityError
from weft.ca.rotation import RotationPhase
from weft.ca.self_made import new_state
from weft.ca.shared import SharedRoot

TERMS = {"skew": timedelta(seconds=5), "root_lifetime": timedelta(days=30)}
DAY = 86_400.0


class Place:
    """The store that all processes watch: it accepts a state only if the request is based on the stored state."""

    def __init__(self, state):
        self.state = state
        self.away = False
        self.refusals = 0
        self.sharing = []

    def join(self):
        shared = SharedRoot(self.state, self.keep, **TERMS)
        self.sharing.append(shared)
        return shared

    def keep(self, wanted, decided_on):
        if self.away or decided_on != self.state:
            self.refusals += 1
            return
        self.state = wanted
        for each in self.sharing:
            each.adopt(wanted)


@pytest.fixture
def clock():
    return making.Clock()


@pytest.fixture
def place(clock):
    return Place(new_state("cluster.local", clock(), TERMS["root_lifetime"]))


@pytest.fixture
def leader(place, clock):
    shared = place.join()
    shared.lead(clock())
    return shared


@pytest.fixture
def follower(place):
    return place.join()


def test_all_sign_with_the_same_root(leader, follower):
    assert leader.signing.certificate == follower.signing.certificate
    assert leader.bundle() == follower.bundle()


def test_every_process_follows_the_phases_of_a_rotation(place, leader, follower, clock):
    old = leader.bundle()[0]
    leader.note(clock() + DAY, DAY)
    leader.rotate(clock(), 100.0)
    new = follower.bundle()[1]
    assert follower.state.phase is RotationPhase.ANNOUNCED and follower.bundle() == (old, new)
    clock.now += 101.0
    leader.tick(clock())
    assert follower.state.phase is RotationPhase.FADING and follower.bundle() == (new, old)
    assert follower.signing.certificate == leader.signing.certificate
    clock.now += 2 * DAY
    leader.tick(clock())
    assert follower.state.phase is RotationPhase.STEADY and follower.bundle() == (new,)


def test_only_the_leader_moves_on(leader, follower, clock):
    leader.rotate(clock(), 100.0)
    leader.follow()
    clock.now += 500.0
    follower.tick(clock())
    leader.tick(clock())
    assert follower.state.phase is RotationPhase.ANNOUNCED
    assert follower.due_at is None
    follower.lead(clock())
    clock.now += 1000.0
    follower.tick(clock())
    assert leader.state.phase is RotationPhase.FADING


def test_time_without_a_leader_does_not_count_towards_propagation(leader, follower, clock):
    leader.rotate(clock(), 600.0)
    leader.follow()
    clock.now += 10 * DAY
    follower.lead(clock())
    follower.tick(clock())
    assert follower.state.phase is RotationPhase.ANNOUNCED
    assert follower.state.switch_at == pytest.approx(clock() + 600.0)


def test_an_old_root_outlives_what_another_process_signed_with_it(leader, follower, clock):
    follower.note(clock() + DAY, DAY)
    assert leader.state.issued_until >= clock() + DAY
    leader.rotate(clock(), 0.0)
    leader.switch(clock())
    clock.now += DAY - 10.0
    leader.tick(clock())
    assert leader.state.phase is RotationPhase.FADING
    clock.now += DAY
    leader.tick(clock())
    assert leader.state.phase is RotationPhase.STEADY


def test_few_certificates_are_written_down(place, leader, clock):
    written = []
    for _ in range(1000):
        clock.now += 1.0
        leader.note(clock() + DAY, DAY)
        if place.state not in written:
            written.append(place.state)
    assert len(written) == 1


def test_a_decision_on_an_outdated_state_is_repeated(place, leader, follower, clock):
    leader.rotate(clock(), 100.0)
    clock.now += 101.0
    place.away = True
    leader.tick(clock())
    assert place.refusals == 1 and leader.state.phase is RotationPhase.ANNOUNCED
    leader.tick(clock())
    assert place.refusals == 1  # it waits before the retry
    place.away = False
    clock.now += 6.0
    leader.tick(clock())
    assert follower.state.phase is RotationPhase.FADING


def test_a_broken_state_is_refused_and_changes_nothing(leader, place, clock):
    before = leader.state
    broken = msgspec.structs.replace(before, signer=msgspec.structs.replace(before.signer, key="nonsense"))
    with pytest.raises(AuthorityError, match="a root or key in this file is invalid"):
        leader.adopt(broken)
    assert leader.state == before


def test_two_rotations_at_once_are_refused(leader, clock):
    leader.rotate(clock(), 100.0)
    with pytest.raises(AuthorityError, match="a rotation is in progress"):
        leader.rotate(clock(), 100.0)
