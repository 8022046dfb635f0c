"""The certificate authority of a trust domain: signs certificates, publishes the roots to trust, and rotates roots.

Input: a CSR and the identity of a caller that `service.py` has authenticated. Output: a certificate chain. Rule:
only the public key of a CSR is used; name, lifetime and purpose of a certificate are decided here.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from weft.base.problem import Problem, Severity
from weft.ca.certificates import Issued, Validity, certificate_pem, make_leaf, make_server
from weft.ca.csr import CsrReason, CsrRefused, PublicKey, read_public_key
from weft.ca.error import AuthorityError
from weft.ca.plugged import PluggedIn, is_plugged_in
from weft.ca.rotation import RotationPhase, State
from weft.ca.self_made import SelfMade
from weft.ca.shared import Keep, SharedRoot
from weft.ca.status import AuthorityStatus, plugged_status, self_made_status
from weft.ca.store import Store
from weft.model.identity import Identity, parse_identity

log = logging.getLogger("weft.ca")
problems_log = logging.getLogger("weft.ca.problems")  # for commands that show no status

_TICK_SECONDS = 1.0
_LOOK_SECONDS = 30.0
_SHORTEST = timedelta(seconds=1)


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """How long an authority's certificates and roots are valid. `lifetime`: that of a certificate if its request names
    no lifetime; `longest`: the limit of requested lifetimes; `root_lifetime`: that of a root that weft creates. `skew`:
    by how much clocks may differ. `propagation`: how long a new root is trusted before it signs."""

    lifetime: timedelta = timedelta(hours=24)  # if none is requested
    longest: timedelta = timedelta(days=90)  # the limit of requested lifetimes
    skew: timedelta = timedelta(seconds=60)  # by how much clocks may differ
    # How long a new root is trusted before it signs. The default is the lifetime of a certificate, because Istio's own
    # agents get roots only when they renew; seconds are enough where every agent watches the bundle.
    propagation: timedelta = timedelta(hours=24)
    root_lifetime: timedelta = timedelta(days=3650)


class Authority:
    def __init__(
        self, trust_domain: str, keeper: SelfMade | SharedRoot | PluggedIn, terms: Terms, clock: Callable[[], float]
    ) -> None:
        self.trust_domain = trust_domain
        self.terms = terms
        self.issued = 0  # workload certificates since the authority was opened
        self.refused: Counter[str] = Counter()  # rejected requests, by reason
        self._keeper = keeper
        self._clock = clock
        self._subscribers: list[Callable[[], None]] = []
        self._looked = -_LOOK_SECONDS
        self._told: frozenset[Problem] = frozenset()  # logged warnings about expiry

    @classmethod
    def in_memory(
        cls, trust_domain: str, terms: Terms | None = None, *, clock: Callable[[], float] = time.time
    ) -> Authority:
        """Return an authority with a new self-made root that exists only in the memory of this process. `terms`:
        lifetimes; None for the defaults. `clock`: returns the Unix time."""
        terms = terms or Terms()
        _check_trust_domain(trust_domain)
        root = SelfMade.make(trust_domain, None, clock(), skew=terms.skew, root_lifetime=terms.root_lifetime)
        return cls(trust_domain, root, terms, clock)

    @classmethod
    def open(
        cls,
        directory: Path,
        trust_domain: str,
        terms: Terms | None = None,
        *,
        clock: Callable[[], float] = time.time,
    ) -> Authority:
        """Return the authority of the plugged-in CA in `directory`, or of a self-made root that is stored there and
        created if missing. Raises AuthorityError. `terms` and `clock`: as for `in_memory`."""
        terms = terms or Terms()
        _check_trust_domain(trust_domain)
        if is_plugged_in(directory):
            return cls(trust_domain, PluggedIn(directory, clock()), terms, clock)
        store = Store(directory)
        try:
            state = store.load()
            if state is None:
                keeper = SelfMade.make(trust_domain, store, clock(), skew=terms.skew, root_lifetime=terms.root_lifetime)
            else:
                keeper = SelfMade.restore(
                    trust_domain, store, state, clock(), skew=terms.skew, root_lifetime=terms.root_lifetime
                )
        except BaseException:
            store.close()
            raise
        return cls(trust_domain, keeper, terms, clock)

    @classmethod
    def share(
        cls, state: State, keep: Keep, terms: Terms | None = None, *, clock: Callable[[], float] = time.time
    ) -> Authority:
        """Return an authority with a root that weft created and with which other processes sign, too (`shared.py`).
        `state`: the current state, which all of these processes share; `keep`: the function that stores a new state.
        Raises AuthorityError. `terms` and `clock`: as for `in_memory`."""
        terms = terms or Terms()
        _check_trust_domain(state.trust_domain)
        shared = SharedRoot(state, keep, skew=terms.skew, root_lifetime=terms.root_lifetime)
        return cls(state.trust_domain, shared, terms, clock)

    def adopt(self, state: State) -> None:
        """Use the newly stored state of a shared root. If this raises AuthorityError, nothing has changed."""
        if isinstance(self._keeper, SharedRoot) and self._keeper.adopt(state):
            self._tell()

    def lead(self) -> None:
        """If the root is shared by several processes, make this process the one that advances rotations, until
        `follow` is called."""
        if isinstance(self._keeper, SharedRoot):
            self._keeper.lead(self._clock())

    def follow(self) -> None:
        if isinstance(self._keeper, SharedRoot):
            self._keeper.follow()

    def bundle(self) -> tuple[str, ...]:
        """Return the roots to trust as PEM; the root that signs now is the first."""
        return self._keeper.bundle()

    async def bundles(self) -> AsyncIterator[tuple[str, ...]]:
        """Yield the current bundle at once, and the whole new bundle whenever the roots change."""
        changed = asyncio.Event()
        unsubscribe = self.subscribe(changed.set)
        try:
            last: tuple[str, ...] = ()
            while True:
                changed.clear()
                if (bundle := self.bundle()) != last:
                    last = bundle
                    yield bundle
                else:
                    await changed.wait()
        finally:
            unsubscribe()

    def sign(self, csr_pem: bytes, identity: Identity, lifetime: timedelta | None = None) -> Issued:
        """Return a certificate for `identity` and the public key of the CSR. Raises CsrRefused if the CSR is invalid,
        and AuthorityError if this authority cannot sign. `lifetime`: the requested lifetime; None for the default."""
        if identity.trust_domain != self.trust_domain or parse_identity(str(identity)) != identity:
            raise ValueError(f"{identity} is not in the trust domain {self.trust_domain}")
        life = self._life(lifetime)
        public_key = read_public_key(csr_pem)
        self.tick()
        issued = self._times(life)
        leaf = make_leaf(self._keeper.signing, public_key, str(identity), _validity(issued))
        self._keeper.note(issued.expires.timestamp(), life.total_seconds())
        return msgspec.structs.replace(issued, chain=(certificate_pem(leaf), *self._keeper.signing.chain))

    def sign_server(self, public_key: PublicKey, names: tuple[str, ...], lifetime: timedelta | None = None) -> Issued:
        """Return a certificate for the control plane's own TLS server with the DNS names and addresses in `names`. A
        rotation does not wait for such a certificate to expire, because the server requests a new one when the signer
        changes. Raises AuthorityError. `lifetime`: the requested lifetime; None for the default."""
        self.tick()
        issued = self._times(self._life(lifetime))
        leaf = make_server(self._keeper.signing, public_key, names, _validity(issued))
        return msgspec.structs.replace(issued, chain=(certificate_pem(leaf), *self._keeper.signing.chain))

    def subscribe(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` whenever the bundle or the signer changes. Return the function that unsubscribes."""
        self._subscribers.append(callback)

        def unsubscribe() -> None:
            if callback in self._subscribers:
                self._subscribers.remove(callback)

        return unsubscribe

    def rotate(self, propagation: timedelta | None = None) -> AuthorityStatus:
        """Create a new root and announce it, and return the new status. The new root is trusted at once, and signs
        after `propagation` (None: that of `terms`); the old root is dropped when its certificates have expired. Raises
        AuthorityError if a rotation is in progress or the CA is plugged in."""
        wait = self.terms.propagation if propagation is None else propagation
        self.tick()
        self._keeper.rotate(self._clock(), max(0.0, wait.total_seconds()))
        log.info("root rotation: a new root is announced; it signs in %s", wait)
        self._tell()
        return self.status()

    def switch(self) -> AuthorityStatus:
        """Let the announced root sign now, without waiting any longer. Raises AuthorityError."""
        self._keeper.switch(self._clock())
        log.info("root rotation: the new root signs from now on")
        self._tell()
        return self.status()

    def tick(self) -> bool:
        """Do what is due now: enter the next phase of a rotation, or load the changed files of a plugged-in CA.
        Return whether the bundle or the signer changed."""
        changed = self._keeper.tick(self._clock())
        if changed:
            self._tell()
        return changed

    async def run(self) -> None:
        """Until cancelled, call `tick` once a second, and earlier if a phase of a rotation is due earlier. Also log
        each signing certificate that has expired or expires soon."""
        while True:
            try:
                self.tick()
            except Exception:
                log.exception(
                    "the CA could not enter the next phase of its rotation or load its changed files; it tries again"
                )
            self._tell_of_ends()
            due = self._keeper.due_at
            left = 0.0 if due is None else due - self._clock()
            # An overdue step has just failed: it is tried again at the normal interval.
            await asyncio.sleep(min(_TICK_SECONDS, left) if left > 0 else _TICK_SECONDS)

    @property
    def phase(self) -> RotationPhase:
        return RotationPhase.STEADY if isinstance(self._keeper, PluggedIn) else self._keeper.state.phase

    def status(self) -> AuthorityStatus:
        status = (
            plugged_status(self.trust_domain, self._keeper.signing.chain, self.bundle(), self._keeper.problem)
            if isinstance(self._keeper, PluggedIn)
            else self_made_status(self._keeper.state)
        )
        return msgspec.structs.replace(status, issued=self.issued, refused=dict(self.refused))

    def close(self) -> None:
        """Release the authority's directory, so that another process can open it."""
        self._keeper.close(self._clock())

    def _life(self, wanted: timedelta | None) -> timedelta:
        life = self.terms.lifetime if wanted is None else wanted
        if life < _SHORTEST:
            raise CsrRefused(CsrReason.LIFETIME, "the lifetime of a certificate must be at least one second")
        return min(life, self.terms.longest)

    def _times(self, life: timedelta) -> Issued:
        """Return an `Issued` without a chain, with the validity of a certificate that is issued now and should be valid
        for `life`. The validity never ends after that of the signer's certificate. Raises AuthorityError if the signer
        has expired."""
        now, signer = self._clock(), self._keeper.signing.certificate
        if now >= signer.not_valid_after_utc.timestamp():
            raise AuthorityError(
                f"the CA's certificate expired on {signer.not_valid_after_utc:%Y-%m-%d %H:%M} UTC",
                "the CA cannot sign until the certificate is replaced; see: weft ca show",
            )
        begins = max(now - self.terms.skew.total_seconds(), signer.not_valid_before_utc.timestamp())
        ends = min(math.ceil(now + life.total_seconds()), signer.not_valid_after_utc.timestamp())
        return Issued(
            chain=(),
            not_before=datetime.fromtimestamp(int(begins), UTC),
            expires=datetime.fromtimestamp(int(ends), UTC),
            issued=datetime.fromtimestamp(now, UTC),
        )

    def _tell_of_ends(self) -> None:
        """Log each signing certificate that has expired or expires soon, once. The certificates are checked only
        every 30 seconds, because they must be parsed for that."""
        now = self._clock()
        if not self._looked <= now < self._looked + _LOOK_SECONDS:
            self._looked = now
            before, self._told = self._told, frozenset(self.status().ends(datetime.fromtimestamp(now, UTC)))
            for problem in self._told - before:
                problems_log.log(
                    logging.ERROR if problem.severity is Severity.ERROR else logging.WARNING, "%s", problem
                )

    def _tell(self) -> None:
        for callback in tuple(self._subscribers):
            try:
                callback()
            except Exception:
                log.exception("a subscriber of the CA failed; the others are still notified")


def _validity(issued: Issued) -> Validity:
    return Validity(issued.not_before.timestamp(), issued.expires.timestamp())


def _check_trust_domain(trust_domain: str) -> None:
    try:
        parse_identity(str(Identity(trust_domain, "namespace", "account")))
    except ValueError as error:
        raise AuthorityError(f"{trust_domain!a} is not a trust domain", "for example: cluster.local") from error
