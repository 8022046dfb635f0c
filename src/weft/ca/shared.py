"""A root that weft made and that several processes sign with, kept where all of them look.

Each one adopts what is kept, whenever it changes; the one that leads moves a rotation on. Rule: nothing is decided here
but by asking for it to be kept; it holds when it comes back by `adopt`, and then for everybody alike. Who asks on the
ground of an old state is refused by the place where it is kept, and asks again.
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

Keep = Callable[[State, State], None]  # what it is to be, and what it was when that was decided; may fail, silently

_RETRY = 5.0  # seconds until what was not kept is asked for again
_HEARTBEAT = 60.0
# How long another process may go on signing by what was kept before: its watch is that late at most.
_LATE = 60.0


class SharedRoot:
    problem = ""

    def __init__(self, state: State, keep: Keep, *, skew: timedelta, root_lifetime: timedelta) -> None:
        """Raises AuthorityError if its key is not its root's."""
        self.state = state
        self.signing = signing_of(state)
        self.leads = False
        self._keep = keep
        self._skew = skew.total_seconds()
        self._root_lifetime = root_lifetime.total_seconds()
        self._issued_until = state.issued_until  # asked for or kept, whichever is later
        self._asked_at = 0.0
        self._longest = 0.0  # seconds: the longest life that was given away

    @property
    def due_at(self) -> float | None:
        return self.state.due_at if self.leads else None

    def bundle(self) -> tuple[str, ...]:
        return self.state.bundle()

    def adopt(self, state: State) -> bool:
        """Whether anything changed that others see. Raises AuthorityError, and then nothing has changed."""
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
        """A certificate goes out. What is kept runs ahead of it by a quarter of a life, so that few write."""
        self._longest = max(self._longest, lifetime)
        if expires > self._issued_until:
            self._issued_until = expires + lifetime / 4
            self._ask(msgspec.structs.replace(self.state, issued_until=self._issued_until))

    def lead(self, now: float) -> None:
        """This process is the one that moves a rotation on, from now."""
        self.leads = True
        if now - self.state.seen_at > 2 * _HEARTBEAT:  # for that long, nobody was there to announce anything
            resumed = rotation.resume(self.state, now)
            if resumed != self.state:
                self._ask(resumed)

    def follow(self) -> None:
        self.leads = False

    def tick(self, now: float) -> bool:
        """Ask for what is due. Never changes anything by itself."""
        if not self.leads or 0.0 <= now - self._asked_at < _RETRY:
            return False
        # Others sign a little longer with the old root than this one knows of.
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
        """Raises AuthorityError."""
        self._ask(begin_rotation(self.state, now, propagation, self._root_lifetime))

    def switch(self, now: float) -> None:
        """Raises AuthorityError."""
        require_announced(self.state)
        until = max(self._issued_until, now + _LATE + self._longest)
        self._ask(rotation.switch(msgspec.structs.replace(self.state, issued_until=until), now, self._skew))

    def close(self, now: float) -> None:
        """Nothing to give back."""

    def _ask(self, wanted: State) -> None:
        self._keep(wanted, self.state)
