from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.ca.rotation import Root, RotationPhase, State, announce, resume, step, switch

OLD, NEW = Root("old", "old key"), Root("new", "new key")
STEADY = State(trust_domain="cluster.local", signer=OLD, issued_until=500.0)


def test_both_roots_are_trusted_before_the_new_one_signs():
    state = announce(STEADY, NEW, now=100.0, propagation=60.0)
    assert state.phase is RotationPhase.ANNOUNCED
    assert state.bundle() == ("old", "new")
    assert state.signer == OLD
    assert step(state, 159.9, skew=5.0) == state


def test_the_new_root_signs_when_the_wait_is_over_and_the_old_key_is_forgotten():
    state = step(announce(STEADY, NEW, now=100.0, propagation=60.0), 160.0, skew=5.0)
    assert state.phase is RotationPhase.FADING
    assert state.signer == NEW
    assert state.bundle() == ("new", "old")
    assert state.previous == "old"
    assert b"old key" not in msgspec.json.encode(state)
    assert state.due_at == 505.0  # the old root's last certificate has expired, plus the clock skew


def test_the_old_root_is_dropped_when_what_it_signed_has_expired():
    state = switch(announce(STEADY, NEW, now=100.0, propagation=60.0), 110.0, skew=5.0)
    assert step(state, 504.9, skew=5.0) == state
    after = step(state, 505.0, skew=5.0)
    assert after.phase is RotationPhase.STEADY
    assert after.bundle() == ("new",)
    assert after.due_at is None


def test_one_rotation_at_a_time():
    state = announce(STEADY, NEW, now=100.0, propagation=60.0)
    for each in (state, step(state, 160.0, skew=5.0)):
        with pytest.raises(ValueError, match="a rotation is in progress"):
            announce(each, NEW, now=200.0, propagation=60.0)
    with pytest.raises(ValueError, match="no root has been announced"):
        switch(STEADY, 100.0, skew=5.0)


def test_downtime_does_not_count_towards_propagation():
    state = announce(STEADY, NEW, now=100.0, propagation=60.0)
    resumed = resume(state, 1100.0)
    assert resumed.switch_at == 1160.0
    assert resume(STEADY, 1100.0) == STEADY
    fading = switch(state, 110.0, skew=5.0)
    assert resume(fading, 1100.0) == fading


def test_a_key_is_not_in_what_is_printed():
    assert "key" not in repr(STEADY)


@given(st.lists(st.floats(0, 400), max_size=30), st.floats(0, 300), st.floats(0, 600))
def test_phases_come_in_order_whatever_the_clock_does(pauses, propagation, issued_until):
    state = announce(State(trust_domain="x", signer=OLD, issued_until=issued_until), NEW, 0.0, propagation)
    seen, now = [state.phase], 0.0
    for pause in pauses:
        now += pause
        following = step(state, now, skew=1.0)
        assert set(following.bundle()) & set(state.bundle())  # two successive bundles always share a root
        if following.phase is RotationPhase.FADING:
            assert now >= propagation
        if following.phase is RotationPhase.STEADY:
            assert now >= issued_until
        state = following
        seen.append(state.phase)
    order = [RotationPhase.ANNOUNCED, RotationPhase.FADING, RotationPhase.STEADY]
    assert [order.index(phase) for phase in seen] == sorted(order.index(phase) for phase in seen)
