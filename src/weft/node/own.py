"""Who the agent itself is to the control plane: its own certificate, got with its own token as any workload gets one.

The file with its projected token comes in, credentials for a TLS connection leave, again whenever there are new ones.
Rule: the token is read anew each time, as kubelet replaces it.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import os
from collections.abc import AsyncGenerator
from datetime import timedelta
from pathlib import Path

import msgspec

from weft.ca.signer import Signer
from weft.model.identity import Identity, parse_identity
from weft.node.identities import LIFETIME, Bearer, Certified, KeptIdentity, TokenSource
from weft.node.status import IdentityStatus

_MOST_TOKEN_BYTES = 64 * 1024
_SUBJECT = "system:serviceaccount:"
_UNKNOWN = "the agent itself"


class Credentials(msgspec.Struct, frozen=True):
    """All in PEM. Prints as nothing of it."""

    chain: bytes  # the leaf first
    key: bytes
    roots: bytes  # by which the other side is known

    def __repr__(self) -> str:
        return "<credentials>"


class OwnIdentity:
    """`trust` must be told of the roots: without them there are no credentials."""

    def __init__(self, token_file: Path, signer: Signer, *, trust_domain: str, lifetime: timedelta = LIFETIME) -> None:
        self.token = token_in(token_file)
        self._signer, self._trust_domain, self._lifetime = signer, trust_domain, lifetime
        self._kept: KeptIdentity | None = None
        self._certified: Certified | None = None
        self._bundle: tuple[str, ...] = ()
        self._changed = asyncio.Condition()
        self._telling: set[asyncio.Task[None]] = set()

    @property
    def status(self) -> IdentityStatus | None:
        return self._kept.status if self._kept is not None else None

    async def run(self) -> None:
        """Until cancelled."""
        identity = await self._who()
        bearer = Bearer(name=_UNKNOWN, identity=identity, token=self.token)
        self._kept = KeptIdentity(bearer, self._signer, publish=self._publish, lifetime=self._lifetime)
        self._kept.trust(self._bundle)
        await self._kept.run()

    def trust(self, bundle: tuple[str, ...]) -> None:
        if bundle and bundle != self._bundle:
            self._bundle = bundle
            if self._kept is not None:
                self._kept.trust(bundle)
            self._tell()

    async def credentials(self) -> AsyncGenerator[Credentials, None]:
        """As soon as there are some, and again whenever there are others, for ever."""
        told: Credentials | None = None
        while True:
            async with self._changed:
                await self._changed.wait_for(lambda: self._now() not in (None, told))
            told = self._now()
            if told is not None:
                yield told

    def _now(self) -> Credentials | None:
        held = self._certified
        if held is None or not self._bundle:
            return None
        return Credentials("".join(held.chain).encode(), held.key.secret_pem(), "".join(self._bundle).encode())

    async def _who(self) -> Identity:
        """Without a token there is nothing to do but to wait for one."""
        while True:
            with contextlib.suppress(OSError, ValueError):
                return identity_in(await self.token(), self._trust_domain)
            await asyncio.sleep(1.0)

    def _publish(self, fresh: Certified) -> None:
        self._certified = fresh
        self._tell()

    def _tell(self) -> None:
        async def tell() -> None:
            async with self._changed:
                self._changed.notify_all()

        task = asyncio.create_task(tell())
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)


def token_in(file: Path) -> TokenSource:
    """A token from a file, read anew for each use."""

    async def read() -> str:
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as opened:
            token = opened.read(_MOST_TOKEN_BYTES).decode("ascii", "replace").strip()
        if not token:
            raise ValueError(f"{file} is empty: there is no token to show to the CA")
        return token

    return read


class _Claims(msgspec.Struct):
    sub: str


def identity_in(token: str, trust_domain: str) -> Identity:
    """Whom the token is about. Its signature is the CA's affair: here it only says what to ask for. Raises ValueError."""
    try:
        payload = token.split(".")[1]
        claims = msgspec.json.decode(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)), type=_Claims)
    except (IndexError, binascii.Error, msgspec.DecodeError, UnicodeError) as error:
        raise ValueError("the agent's own token is not one of Kubernetes") from error
    namespace, _, account = claims.sub.removeprefix(_SUBJECT).partition(":")
    return parse_identity(str(Identity(trust_domain, namespace, account)))
