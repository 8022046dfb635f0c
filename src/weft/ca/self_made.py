"""A root that weft created itself, and its successors, either in memory or stored in a directory across restarts.

Rule: each decision is written to disk before it takes effect, so that a restart continues in the same phase.
"""

from __future__ import annotations

import logging
from datetime import timedelta

import msgspec
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization

from weft.ca import rotation
from weft.ca.certificates import Signing, Validity, certificate_pem, key_pem, make_root, new_key
from weft.ca.error import AuthorityError
from weft.ca.rotation import Root, RotationPhase, State
from weft.ca.store import STATE, Store

log = logging.getLogger("weft.ca")

_BACKDATED = 3600.0  # seconds; a machine whose clock is slow by up to this much accepts a new root at once
_HEARTBEAT = 60.0  # seconds between two writes of `seen_at`; a crash can extend the wait for the new root by this much


class SelfMade:
    problem = ""  # always empty: only a plugged-in CA can have invalid files

    def __init__(self, state: State, store: Store | None, *, skew: timedelta, root_lifetime: timedelta) -> None:
        self.state = state
        self.signing = signing_of(state, store)
        self._store = store
        self._skew = skew.total_seconds()
        self._root_lifetime = root_lifetime.total_seconds()
        self._issued_until = state.issued_until  # the exact time; the stored one is a little later
        self._told_of_disk = False

    @classmethod
    def make(
        cls, trust_domain: str, store: Store | None, now: float, *, skew: timedelta, root_lifetime: timedelta
    ) -> SelfMade:
        state = new_state(trust_domain, now, root_lifetime)
        if store is not None:
            _save(store, state)
        return cls(state, store, skew=skew, root_lifetime=root_lifetime)

    @classmethod
    def restore(
        cls, trust_domain: str, store: Store, state: State, now: float, *, skew: timedelta, root_lifetime: timedelta
    ) -> SelfMade:
        """Return the root of `trust_domain` from its stored `state`, and resume its rotation at the time `now`. Raises
        AuthorityError if the state is for another trust domain or the root has expired. `store`: the directory of the
        state. `skew`: by how much clocks may differ. `root_lifetime`: how long new roots are valid."""
        if state.trust_domain != trust_domain:
            raise AuthorityError(
                f"the root in this file is for the trust domain {state.trust_domain!a}, not {trust_domain!a}",
                "use the trust domain of that root, or another directory",
                file=store.directory / STATE,
            )
        kept = cls(state, store, skew=skew, root_lifetime=root_lifetime)
        if now >= kept.signing.ends:
            raise AuthorityError(
                f"the root in this file expired on {kept.signing.certificate.not_valid_after_utc:%Y-%m-%d}",
                f"all its certificates have expired, too; move {STATE} away, and weft creates a new root",
                file=store.directory / STATE,
            )
        resumed = rotation.resume(state, now)
        if resumed != state:
            _save(store, resumed)
            kept.state = resumed
        return kept

    @property
    def due_at(self) -> float | None:
        return self.state.due_at

    def bundle(self) -> tuple[str, ...]:
        return self.state.bundle()

    def note(self, expires: float, lifetime: float) -> None:
        """Record that an issued certificate expires at `expires`, so that its root is trusted until then. If this is
        later than `issued_until` of the stored state, store `expires` plus a quarter of the certificate's `lifetime`,
        so that the next certificates need no new write."""
        self._issued_until = max(self._issued_until, expires)
        if expires > self.state.issued_until:
            ahead = msgspec.structs.replace(self.state, issued_until=expires + lifetime / 4)
            self._put(ahead)

    def tick(self, now: float) -> bool:
        """Enter the next phase of a rotation if it is due. Return whether the bundle or the signer changed."""
        exact = msgspec.structs.replace(self.state, issued_until=self._issued_until)
        following = rotation.step(exact, now, self._skew)
        if following != exact:
            before = self.state.phase
            if not self._put(following):
                return False
            log.info("root rotation: %s → %s", before, following.phase)
            return True
        self._beat(now)
        return False

    def rotate(self, now: float, propagation: float) -> None:
        """Create and announce a new root, which signs after `propagation` seconds. Raises AuthorityError."""
        self._decide(begin_rotation(self.state, now, propagation, self._root_lifetime))

    def switch(self, now: float) -> None:
        """Let the announced root sign from now on. Raises AuthorityError."""
        require_announced(self.state)
        exact = msgspec.structs.replace(self.state, issued_until=self._issued_until)
        self._decide(rotation.switch(exact, now, self._skew))

    def close(self, now: float) -> None:
        if self._store is not None:
            self._beat(now, every=0.0)
            self._store.close()

    def _decide(self, state: State) -> None:
        try:
            if self._store is not None:
                self._store.save(state)
        except OSError as error:
            raise AuthorityError(
                f"the file cannot be written: {error.strerror}", "is the disk full?", file=STATE
            ) from error
        self._adopt(state)

    def _beat(self, now: float, *, every: float = _HEARTBEAT) -> None:
        state = self.state
        if state.phase is RotationPhase.ANNOUNCED and now - state.seen_at > every:
            self._put(msgspec.structs.replace(state, seen_at=now))

    def _put(self, state: State) -> bool:
        """Store and use `state`, and return whether it could be stored. A failed write is logged once and tried
        again later; until then certificates are still issued, but no new phase begins."""
        try:
            if self._store is not None:
                self._store.save(state)
        except OSError as error:
            if not self._told_of_disk:
                log.error("cannot write the CA's state (%s); trying again", error)
            self._told_of_disk = True
            return False
        self._told_of_disk = False
        self._adopt(state)
        return True

    def _adopt(self, state: State) -> None:
        if state.signer != self.state.signer:
            self.signing = signing_of(state, self._store)
            self._issued_until = 0.0
        self.state = state


def new_state(trust_domain: str, now: float, root_lifetime: timedelta) -> State:
    return State(trust_domain=trust_domain, signer=new_root(trust_domain, now, root_lifetime.total_seconds()))


def signing_of(state: State, store: Store | None = None) -> Signing:
    """Return the signing certificate and key of `state`. Raises AuthorityError if they do not belong together. `store`:
    the directory of the state, for the error message; None if the state is only in memory."""
    file = store.directory / STATE if store else ""
    hint = "restore it from a backup; without this file weft creates a new root, which no proxy trusts yet"
    try:
        certificate = x509.load_pem_x509_certificate(state.signer.certificate.encode())
        key = serialization.load_pem_private_key(state.signer.key.encode(), password=None)
        for other in state.bundle()[1:]:
            x509.load_pem_x509_certificate(other.encode())
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise AuthorityError("a root or key in this file is invalid", hint, file=file) from error
    if key.public_key() != certificate.public_key():
        raise AuthorityError("the key in this file does not belong to its root certificate", hint, file=file)
    return Signing(certificate, key)  # type: ignore[arg-type]


def new_root(trust_domain: str, now: float, lifetime: float) -> Root:
    key = new_key()
    certificate = make_root(trust_domain, key, Validity(now - _BACKDATED, now + lifetime))
    return Root(certificate_pem(certificate), key_pem(key))


def begin_rotation(state: State, now: float, propagation: float, root_lifetime: float) -> State:
    """Return `state` with a new, announced root, which signs after `propagation` seconds and is valid for
    `root_lifetime` seconds. Raises AuthorityError if a rotation is in progress."""
    if state.phase is not RotationPhase.STEADY:
        raise AuthorityError(f"a rotation is in progress ({state.phase})", "see its progress: weft ca status")
    return rotation.announce(state, new_root(state.trust_domain, now, root_lifetime), now, propagation)


def require_announced(state: State) -> None:
    """Raise AuthorityError if no root is announced in `state`."""
    if state.phase is not RotationPhase.ANNOUNCED:
        raise AuthorityError(f"no new root is announced ({state.phase})", "start a rotation: weft ca rotate")


def _save(store: Store, state: State) -> None:
    try:
        store.save(state)
    except OSError as error:
        raise AuthorityError(
            f"the file cannot be written: {error.strerror}", "is the disk full?", file=store.directory / STATE
        ) from error
