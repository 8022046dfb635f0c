"""Leader election by a Lease: the replica that holds the Lease is the leader, and stops leading in time when it
cannot renew the Lease.

Compatible with client-go: expiry counts from when *this process* last saw the Lease change, never from the
timestamps in the Lease, so that clocks may differ. Rule: `lead` is cancelled, and has ended, before another replica
may become the leader.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import msgspec

from weft.base.backoff import Backoff
from weft.kube.client import Client
from weft.kube.error import ApiError, KubeError
from weft.kube.resource import LEASES

log = logging.getLogger("weft.kube")


class LeaseTiming(msgspec.Struct, frozen=True):
    """Timing of the leader election, in seconds; the defaults are client-go's. `retry`: the time between attempts to
    acquire or renew the Lease. `deadline`: after so long without a successful renewal, the leader is cancelled (`lead`
    in `run`). `duration`: after so long without a renewal, another replica may lead; the cancelled leader must have
    ended by then."""

    duration: float = 15.0  # a holder that has not renewed the Lease for this long is considered dead
    deadline: float = 10.0  # after this long without renewal, this process stops leading
    retry: float = 2.0  # between attempts to renew or acquire the Lease


class Leader:
    def __init__(
        self,
        client: Client,
        namespace: str,
        name: str,
        identity: str,
        *,
        timing: LeaseTiming = LeaseTiming(),  # noqa: B008 - frozen
    ) -> None:
        """Compete for the Lease `name` in `namespace`. `identity`: unique to this process, such as the pod's name.
        `timing`: see `LeaseTiming`."""
        if not timing.retry < timing.deadline < timing.duration:
            raise ValueError("a lease needs retry < deadline < duration")
        self._client, self._namespace, self._name, self._identity = client, namespace, name, identity
        self._timing = timing
        self._seen: _Lease | None = None
        self._seen_at = 0.0
        self._leading = False

    @property
    def leading(self) -> bool:
        return self._leading

    @property
    def holder(self) -> str:
        """The identity of the Lease's holder, as last read; "" if it has no holder."""
        return self._seen.spec.holder_identity or "" if self._seen is not None else ""

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Run `lead` while this process holds the Lease. When holding the Lease is no longer certain, cancels `lead`
        and tries to acquire the Lease again. Ends when `lead` returns or raises, and re-raises its exception. The
        Lease is released at the end."""
        try:
            while True:
                renewed = await self._acquire()
                log.info("%s leads: it holds lease %s/%s", self._identity, self._namespace, self._name)
                self._leading = True
                if await self._led(lead, renewed):
                    return
                self._leading = False
                log.warning("lease %s/%s is lost: %s no longer leads", self._namespace, self._name, self._identity)
        finally:
            self._leading = False
            await self._release()

    async def _acquire(self) -> float:
        """Wait until this process holds the Lease. Returns the time of the event loop's clock at which the request
        to acquire it was sent: the Lease is held for `duration` seconds from then."""
        trouble = Backoff(first=self._timing.retry, most=self._timing.duration, jitter=0.5)
        while True:
            requested_at = _now()
            try:
                if await self._try():
                    return requested_at
                trouble.reset()
            except KubeError as error:
                if not (isinstance(error, ApiError) and error.conflict):  # a conflict: another replica was faster
                    if trouble.failures == 0:
                        log.warning("lease %s/%s cannot be acquired: %s", self._namespace, self._name, error)
                    await asyncio.sleep(trouble.next())
                    continue
            await asyncio.sleep(self._timing.retry * random.uniform(1.0, 1.2))  # noqa: S311 - not a secret

    async def _led(self, lead: Callable[[], Awaitable[None]], renewed: float) -> bool:
        """Run `lead` and renew the Lease meanwhile. Returns True if `lead` has returned, False if the Lease was lost.
        `renewed`: when the last successful request for the Lease was sent, by the event loop's clock."""
        leading = asyncio.ensure_future(lead())
        keeping = asyncio.create_task(self._keep(renewed))
        try:
            await asyncio.wait((leading, keeping), return_when=asyncio.FIRST_COMPLETED)
            if leading.done():
                await leading
                return True
            return False
        finally:
            try:
                await _ended(leading)  # the Lease is still renewed meanwhile, if this process holds it
            finally:
                await _ended(keeping)

    async def _keep(self, renewed: float) -> None:
        """Renew the Lease until renewals have failed for `deadline` seconds, or until another process holds the Lease.
        `renewed`: when the last successful request for the Lease was sent, by the event loop's clock."""
        while True:
            await asyncio.sleep(self._timing.retry)
            requested_at = _now()
            left = renewed + self._timing.deadline - requested_at
            try:
                async with asyncio.timeout(left):
                    if not await self._try():
                        return
                    renewed = requested_at
            except TimeoutError:
                return
            except KubeError as error:
                log.warning("lease %s/%s was not renewed: %s", self._namespace, self._name, error)

    async def _try(self) -> bool:
        """Acquire or renew the Lease if no other process holds it. Returns whether this process holds it. Raises
        ApiError with `conflict` if another process wrote first."""
        try:
            lease = await self._client.get(LEASES, self._name, _Lease, namespace=self._namespace)
        except ApiError as error:
            if not error.not_found:
                raise
            await self._write(None)
            return True
        if self._seen is None or lease.spec != self._seen.spec:
            self._seen_at = _now()
        self._seen = lease
        holder = lease.spec.holder_identity
        if holder and holder != self._identity and _now() < self._seen_at + self._duration_of(lease):
            return False
        await self._write(lease)
        return True

    def _duration_of(self, lease: _Lease) -> float:
        seconds = lease.spec.lease_duration_seconds or 0
        return float(seconds) if seconds > 0 else self._timing.duration

    async def _write(self, before: _Lease | None) -> None:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec: dict[str, Any] = {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": max(1, round(self._timing.duration)),
            "renewTime": now,
        }
        if before is None or before.spec.holder_identity != self._identity:
            transitions = 0 if before is None else (before.spec.lease_transitions or 0) + 1
            spec |= {"acquireTime": now, "leaseTransitions": transitions}
        await self._send(before, spec)

    async def _send(self, before: _Lease | None, spec: dict[str, Any]) -> None:
        if before is None:
            metadata = {"name": self._name, "namespace": self._namespace}
            manifest = {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": metadata, "spec": spec}
            self._seen = await self._client.create(LEASES, manifest, _Lease, namespace=self._namespace)
        else:
            # A patch keeps fields that others wrote; with the resourceVersion, it fails if the Lease changed meanwhile.
            patch = {"metadata": {"resourceVersion": before.metadata.resource_version}, "spec": spec}
            self._seen = await self._client.patch(LEASES, self._name, patch, _Lease, namespace=self._namespace)
        self._seen_at = _now()

    async def _release(self) -> None:
        """Release the Lease so that the next holder need not wait. Best effort: if the release fails, the Lease
        expires after `duration`."""
        seen = self._seen
        if seen is None or seen.spec.holder_identity != self._identity:
            return
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        with contextlib.suppress(KubeError, TimeoutError):
            async with asyncio.timeout(self._timing.retry):
                await self._send(seen, {"holderIdentity": None, "leaseDurationSeconds": 1, "renewTime": now})


class _Metadata(msgspec.Struct, rename="camel"):
    resource_version: str = ""


class _Spec(msgspec.Struct, rename="camel"):
    """The `spec` of a Lease. Times are kept as text, as they are only compared."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class _Lease(msgspec.Struct):
    metadata: _Metadata
    spec: _Spec = msgspec.field(default_factory=_Spec)


def _now() -> float:
    return asyncio.get_running_loop().time()


async def _ended(task: asyncio.Future[None]) -> None:
    """Cancel a task and wait until it has ended, however long that takes. If this call is cancelled meanwhile, it
    raises CancelledError only after the task has ended."""
    if task.done():
        return
    task.cancel()
    cancelled = False
    while not task.done():
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError:
            cancelled = True
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("the task of the leader failed while it was stopped: %r", error, exc_info=error)
    if cancelled:
        raise asyncio.CancelledError
