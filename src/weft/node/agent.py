"""The agent of one machine: every workload's identity and the socket that it is served on, from the one's first moment
to its last.

The local engine, the watcher of registrations or kubelet's volumes come in with workloads; certificates leave through
their sockets.
Rule: what one workload lacks or does wrong is no other's trouble, and a CA that is away takes nothing from anybody.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from weft.base.backoff import Backoff
from weft.base.secrecy import keep_memory_private
from weft.ca.signer import CaUnavailable, Signer, SigningRefused
from weft.node.door import Doorway
from weft.node.identities import LIFETIME, Bearer, Certified, KeptIdentity
from weft.node.sds import SecretServer, certificate_secret, roots_secret
from weft.node.status import IdentityStatus

log = logging.getLogger("weft.node.agent")


class Agent:
    """`private` is a directory that only root can enter; `bundle` is whom to trust until the CA says it; `changed` is
    told of the workload whose status is another, `certified` of each new certificate, `trusted` of other roots."""

    def __init__(
        self,
        signer: Signer,
        private: Path,
        *,
        lifetime: timedelta = LIFETIME,
        bundle: tuple[str, ...] = (),
        changed: Callable[[str], None] = lambda workload: None,
        certified: Callable[[str, Certified], None] = lambda workload, fresh: None,
        trusted: Callable[[tuple[str, ...]], None] = lambda bundle: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._signer, self._lifetime, self._changed, self._clock = signer, lifetime, changed, clock
        self._certified, self._trusted = certified, trusted
        self._secrets = SecretServer(private)
        self._kept: dict[str, tuple[KeptIdentity, asyncio.Task[None]]] = {}
        self._bundle = bundle
        self._following: asyncio.Task[None] | None = None

    def start(self) -> None:
        keep_memory_private()
        self._following = asyncio.create_task(self._follow_roots(), name="roots")

    async def close(self) -> None:
        """The workloads may live on, and the next agent serve them."""
        for workload in self._secrets.workloads():
            await self._stop(workload, gone=False)
        if self._following is not None:
            self._following.cancel()
            await asyncio.wait({self._following})

    async def open(self, workload: str, doorway: Doorway) -> None:
        """Only its socket, where its proxy learns whom to trust: who it is, is not known yet. Raises DoorError."""
        await self._stop(workload, gone=False)
        await self._secrets.open(workload, doorway)
        self._put_roots(workload)

    async def add(self, bearer: Bearer, doorway: Doorway, before: Certified | None = None) -> None:
        """Open its socket and begin to get it a certificate, unless what it had `before` is still good. Raises
        DoorError. One of the same name is replaced."""
        workload = bearer.workload
        if workload in self._kept or not self._secrets.is_open(workload, doorway):
            await self.open(workload, doorway)
        kept = KeptIdentity(
            bearer,
            self._signer,
            publish=lambda fresh: self._publish(workload, fresh),
            changed=lambda: self._changed(workload),
            lifetime=self._lifetime,
            clock=self._clock,
            before=before,
        )
        self._kept[workload] = kept, asyncio.create_task(kept.run(), name=f"identity-{bearer.name}")
        if self._bundle:
            kept.trust(self._bundle)

    async def remove(self, workload: str) -> None:
        """Its socket and its key are gone when this returns. Idempotent."""
        await self._stop(workload, gone=True)

    def hurry(self, workload: str) -> None:
        """There is a fresh token: what failed for the old one is tried again now."""
        if (kept := self._kept.get(workload)) is not None:
            kept[0].hurry()

    async def _stop(self, workload: str, *, gone: bool) -> None:
        kept, running = self._kept.pop(workload, (None, None))
        if kept is not None and running is not None:
            running.cancel()
            await asyncio.wait({running})
        await self._secrets.close(workload, gone=gone)

    @property
    def bundle(self) -> tuple[str, ...]:
        return self._bundle

    def status(self, workload: str) -> IdentityStatus | None:
        kept, _ = self._kept.get(workload, (None, None))
        return kept.status if kept is not None else None

    def statuses(self) -> list[IdentityStatus]:
        return [kept.status for kept, _ in self._kept.values()]

    def lack(self, workload: str) -> str:
        """Why it cannot show who it is, or whom to trust; empty if it can."""
        status, now = self.status(workload), self._clock()
        if status is None:
            return "it has no identity"
        if not status.is_held(now):
            return f"no identity: {status.trouble(now) or 'its certificate is not good now'}"
        return "" if self._bundle else "no identity: the CA has not said yet which roots to trust"

    async def _follow_roots(self) -> None:
        backoff = Backoff(first=0.2, most=10.0)
        while True:
            try:
                async for bundle in self._signer.bundles():
                    backoff.reset()
                    self._on_bundle(bundle)
            except (CaUnavailable, SigningRefused, OSError) as error:
                log.warning("the CA does not say which roots to trust: %s", error)
            except Exception:
                log.exception("following the roots of the CA failed in a way nobody thought of")
            await asyncio.sleep(backoff.next())

    def _on_bundle(self, bundle: tuple[str, ...]) -> None:
        if not bundle or bundle == self._bundle:
            return  # nobody is told to trust nobody
        if self._bundle:
            log.info("the roots have changed: %d are trusted now", len(bundle))
        self._bundle = bundle
        for workload in self._secrets.workloads():
            self._put_roots(workload)
        for kept, _ in self._kept.values():
            kept.trust(bundle)
        self._trusted(bundle)

    def _put_roots(self, workload: str) -> None:
        if self._bundle:
            self._secrets.put(workload, roots_secret(self._bundle))

    def _publish(self, workload: str, fresh: Certified) -> None:
        self._secrets.put(workload, certificate_secret(fresh.chain, fresh.key.secret_pem()))
        self._certified(workload, fresh)
