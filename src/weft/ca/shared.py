"""A root that weft created and with which several processes sign. Its state is in a store that all of them watch.

Each process adopts the stored state whenever the state changes; one process, the leader, advances rotations. Rule: a
process that decides something requests to store a new state. The decision takes effect in every process when that
process adopts the stored state. The store rejects a request that is based on an old state, and the request is tried
again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta

import msgspec

from weft.ca import rotation
from weft.ca.rotation import RotationPhase, State
from weft.ca.self_made import begin_rotation, require_announced, signing_of

log = logging.getLogger("weft.ca")

Keep = Callable[[State, State], None]  # (new state, the state it is based on); may fail without an exception

_RETRY = 5.0  # seconds until a state that was not stored is requested again
_HEARTBEAT = 60.0
# How long another process may continue to sign with the previous state: the maximum delay of that process's watch, in
# seconds.
_LATE = 60.0


class SharedRoot:
    problem = ""

    def __init__(self, state: State, keep: Keep, *, skew: timedelta, root_lifetime: timedelta) -> None:
        """`keep`: stores a new state. `skew`: by how much clocks may differ. `root_lifetime`: how long new roots are
        valid. Raises AuthorityError if the key in `state` does not belong to its root."""
        self.state = state
        self.signing = signing_of(state)
        self.leads = False
        self._keep = keep
        self._skew = skew.total_seconds()
        self._root_lifetime = root_lifetime.total_seconds()
        self._issued_until = state.issued_until  # the later one of the requested and the stored time
        self._asked_at = 0.0
        self._longest = 0.0  # seconds: the longest issued lifetime

    @property
    def due_at(self) -> float | None:
        return self.state.due_at if self.leads else None

    def bundle(self) -> tuple[str, ...]:
        return self.state.bundle()

    def adopt(self, state: State) -> bool:
        """Use a newly stored state. Return whether the bundle or the signer changed. If this raises AuthorityError,
        nothing has changed."""
        before = self.state
        if state.signer != before.signer:
            self.signing = signing_of(state)
            self._issued_until = 0.0
        self.state = state
        self._issued_until = max(self._issued_until, state.issued_until)
        if before.phase is not state.phase:
            log.info("root rotation: %s → %s", before.phase, state.phase)
        return (before.signer, before.bundle()) != (state.signer, state.bundle())

    def note(self, expires: float, lifetime: float) -> None:
        """Record that an issued certificate expires at `expires`, so that its root is trusted until then. If this is
        later than `issued_until` of the stored state, request to store `expires` plus a quarter of the certificate's
        `lifetime`, so that the next certificates need no new write."""
        self._longest = max(self._longest, lifetime)
        if expires > self._issued_until:
            self._issued_until = expires + lifetime / 4
            self._ask(msgspec.structs.replace(self.state, issued_until=self._issued_until))

    def lead(self, now: float) -> None:
        """Make this process the one that advances rotations. If no leader has served an announced root for more than
        two minutes, request to postpone the switch to that root by the time without a leader (`rotation.resume`)."""
        self.leads = True
        if now - self.state.seen_at > 2 * _HEARTBEAT:  # no leader served the announced root in this time
            resumed = rotation.resume(self.state, now)
            if resumed != self.state:
                self._ask(resumed)

    def follow(self) -> None:
        self.leads = False

    def tick(self, now: float) -> bool:
        """Request to store the next phase if it is due. Always returns False: a change takes effect only in `adopt`."""
        if not self.leads or 0.0 <= now - self._asked_at < _RETRY:
            return False
        # Other processes may sign with the old root for a while without this process noticing.
        until = max(self._issued_until, now + _LATE + self._longest if self._longest else 0.0)
        exact = msgspec.structs.replace(self.state, issued_until=until)
        following = rotation.step(exact, now, self._skew)
        if following != exact:
            self._asked_at = now
            self._ask(following)
        elif self.state.phase is RotationPhase.ANNOUNCED and now - self.state.seen_at > _HEARTBEAT:
            self._asked_at = now
            self._ask(msgspec.structs.replace(self.state, seen_at=now))
        return False

    def rotate(self, now: float, propagation: float) -> None:
        """Create a new root, and request to store it as announced; it signs after `propagation` seconds. Raises
        AuthorityError."""
        self._ask(begin_rotation(self.state, now, propagation, self._root_lifetime))

    def switch(self, now: float) -> None:
        """Request to store a state in which the announced root signs from now on. Raises AuthorityError."""
        require_announced(self.state)
        until = max(self._issued_until, now + _LATE + self._longest)
        self._ask(rotation.switch(msgspec.structs.replace(self.state, issued_until=until), now, self._skew))

    def close(self, now: float) -> None:
        """Do nothing: there is no resource to release."""

    def _ask(self, wanted: State) -> None:
        self._keep(wanted, self.state)
