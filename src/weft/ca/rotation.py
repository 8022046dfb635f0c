"""Root rotation without an outage, as pure functions: from a state and a time to the next state.

    steady     one root, which signs
    announced  both roots are trusted, the old one still signs: all proxies have time to get the new one
    fading     both roots are trusted, the new one signs: certificates of the old one have time to expire

Rule: a root signs only when all proxies can have it in their bundle, and no root is dropped while its certificates are
valid.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec


class RotationPhase(StrEnum):
    STEADY = "steady"
    ANNOUNCED = "announced"
    FADING = "fading"


class Root(msgspec.Struct, frozen=True):
    certificate: str  # PEM
    key: str  # PEM; never shown

    def __repr__(self) -> str:
        return "Root(…)"


class State(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The stored state of a self-made root and its rotation. `version`: that of the format. Times are Unix seconds.
    `signer` is the root that signs; none of its certificates is valid after `issued_until`. `next`: the announced root,
    which begins to sign at `switch_at`; a process last served it at `seen_at`. `previous`: the root that signed before,
    which is trusted until `drop_at`."""

    version: int = 1
    trust_domain: str
    signer: Root
    issued_until: float = 0.0  # no certificate of the signer is valid after this time
    next: Root | None = None
    switch_at: float = 0.0  # when the next root begins to sign
    seen_at: float = 0.0  # when a process last served the announced root
    previous: str = ""  # PEM of the previous root, without its key: it no longer signs
    drop_at: float = 0.0  # when the previous root is dropped from the bundle

    @property
    def phase(self) -> RotationPhase:
        if self.next is not None:
            return RotationPhase.ANNOUNCED
        return RotationPhase.FADING if self.previous else RotationPhase.STEADY

    @property
    def due_at(self) -> float | None:
        return {
            RotationPhase.STEADY: None,
            RotationPhase.ANNOUNCED: self.switch_at,
            RotationPhase.FADING: self.drop_at,
        }[self.phase]

    def bundle(self) -> tuple[str, ...]:
        """Return every root to trust; the root that signs is the first."""
        others = (self.next.certificate if self.next else "", self.previous)
        return (self.signer.certificate, *(other for other in others if other))


def announce(state: State, root: Root, now: float, propagation: float) -> State:
    if state.phase is not RotationPhase.STEADY:
        raise ValueError(f"a rotation is in progress ({state.phase})")
    return msgspec.structs.replace(state, next=root, switch_at=now + propagation, seen_at=now)


def resume(state: State, now: float) -> State:
    """Return the state in which the switch to the announced root is postponed by the time since `seen_at`. In that
    time no process served the announced root, so no proxy could get it. If no root is announced, return `state`
    unchanged."""
    if state.phase is not RotationPhase.ANNOUNCED:
        return state
    pause = max(0.0, now - state.seen_at)
    return msgspec.structs.replace(state, switch_at=state.switch_at + pause, seen_at=now)


def switch(state: State, now: float, skew: float) -> State:
    """Return the state in which the announced root signs and the key of the old root is discarded. The old root
    stays trusted until its certificates have expired; `skew` seconds are added, by which clocks may differ."""
    if state.next is None:
        raise ValueError("no root has been announced")
    return msgspec.structs.replace(
        state,
        signer=state.next,
        issued_until=0.0,
        next=None,
        switch_at=0.0,
        seen_at=0.0,
        previous=state.signer.certificate,
        drop_at=max(state.issued_until, now) + skew,
    )


def step(state: State, now: float, skew: float) -> State:
    """Return the state of the next phase if that phase is due at `now`, else `state`. Advances by one phase at most.
    `skew`: by how many seconds clocks may differ."""
    if state.phase is RotationPhase.ANNOUNCED and now >= state.switch_at:
        return switch(state, now, skew)
    if state.phase is RotationPhase.FADING and now >= state.drop_at:
        return msgspec.structs.replace(state, previous="", drop_at=0.0)
    return state
