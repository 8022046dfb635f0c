"""The agent of one machine: it gets and renews the certificate of every workload, and serves it by SDS on a Unix socket
of that workload.

Workloads are added by the local engine, by the watcher of the registration files, or by the CSI calls with which
kubelet publishes a pod's volume. Their Envoys get certificates and roots through the sockets. Rule: a failure of one
workload affects no other workload, and while the CA cannot be reached, every workload keeps what it has.
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
    """Serves the certificates of all workloads of one machine. `private` is a directory that only root can enter, for
    the server's own sockets. `lifetime` is the lifetime that is requested for each certificate. `bundle`: the roots to
    trust until the CA has sent roots. Callbacks: `changed` is called with a workload whose status changed, `certified`
    with a workload and its new certificate, `trusted` with the new roots."""

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
        """Stop serving, but keep the sockets' directories: workloads may keep running, and the next agent serves them
        again."""
        for workload in self._secrets.workloads():
            await self._stop(workload, gone=False)
        if self._following is not None:
            self._following.cancel()
            await asyncio.wait({self._following})

    async def open(self, workload: str, doorway: Doorway) -> None:
        """Open the workload's socket and serve only the roots there, without a certificate, because the workload's
        identity is not known yet. Raises DoorError."""
        await self._stop(workload, gone=False)
        await self._secrets.open(workload, doorway)
        self._put_roots(workload)

    async def add(self, bearer: Bearer, doorway: Doorway, before: Certified | None = None) -> None:
        """Open the socket of the workload `bearer` at `doorway`, and keep its certificate valid from now on. `before`
        is a certificate that an earlier agent got for the workload: while it is valid, no new one is requested. A
        socket that `open` has opened at the same doorway stays open; any other socket of this workload is replaced.
        Raises DoorError."""
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
        """Delete the workload's socket and forget its key before returning. Idempotent."""
        await self._stop(workload, gone=True)

    def hurry(self, workload: str) -> None:
        """Retry a failed certificate request now, because a fresh token has arrived."""
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
        """Return why the workload has no valid certificate or no roots; an empty string if it has both."""
        status, now = self.status(workload), self._clock()
        if status is None:
            return "the workload has no identity"
        if not status.is_held(now):
            return f"no identity: {status.trouble(now) or 'its certificate is not valid now'}"
        return "" if self._bundle else "no identity: the CA has not sent the roots to trust yet"

    async def _follow_roots(self) -> None:
        backoff = Backoff(first=0.2, most=10.0)
        while True:
            try:
                async for bundle in self._signer.bundles():
                    backoff.reset()
                    self._on_bundle(bundle)
            except (CaUnavailable, SigningRefused, OSError) as error:
                log.warning("cannot get the roots to trust from the CA: %s", error)
            except Exception:
                log.exception("cannot get the roots to trust from the CA, because of an unexpected error")
            await asyncio.sleep(backoff.next())

    def _on_bundle(self, bundle: tuple[str, ...]) -> None:
        if not bundle or bundle == self._bundle:
            return  # an empty bundle would make proxies trust no peer
        if self._bundle:
            log.info("the roots have changed; number of trusted roots: %d", len(bundle))
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
