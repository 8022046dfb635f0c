"""Who the agent itself is to the control plane: its own certificate, got with its own token as any workload gets one.

A file with a token that kubelet keeps fresh comes in, credentials for a TLS connection leave, again whenever there are
others. Rule: what is said of them in a log or an error is nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from datetime import timedelta
from pathlib import Path

import msgspec

from weft.ca.signer import Signer
from weft.model.identity import Identity
from weft.node.identities import LIFETIME, Bearer, Certified, KeptIdentity
from weft.node.status import IdentityStatus
from weft.node.tokens import identity_in, token_in

log = logging.getLogger("weft.node.own")

_NAME = "the agent itself"
_RETRY = 1.0  # seconds
_MOST_DELAY = 5.0  # seconds between tries: without it, nothing new reaches any pod of the machine


class ClientCredentials(msgspec.Struct, frozen=True):
    """All in PEM."""

    chain: bytes  # the leaf first
    key: bytes
    roots: bytes  # by which the other side is known

    def __repr__(self) -> str:
        return "<credentials>"


class OwnIdentity:
    """There are no credentials until `trust` was told of the roots."""

    def __init__(self, token_file: Path, signer: Signer, *, trust_domain: str, lifetime: timedelta = LIFETIME) -> None:
        self.token = token_in(token_file)
        self._file, self._signer, self._trust_domain, self._lifetime = token_file, signer, trust_domain, lifetime
        self._kept: KeptIdentity | None = None
        self._certified: Certified | None = None
        self._bundle: tuple[str, ...] = ()
        self._news = asyncio.Event()

    @property
    def status(self) -> IdentityStatus | None:
        return self._kept.status if self._kept is not None else None

    @property
    def held(self) -> ClientCredentials | None:
        return self._now()

    async def run(self) -> None:
        """Until cancelled."""
        bearer = Bearer(name=_NAME, identity=await self._who(), token=self.token)
        self._kept = KeptIdentity(
            bearer, self._signer, publish=self._publish, lifetime=self._lifetime, most_delay=_MOST_DELAY
        )
        self._kept.trust(self._bundle)
        await self._kept.run()

    def trust(self, bundle: tuple[str, ...]) -> None:
        self._bundle = bundle
        if self._kept is not None:
            self._kept.trust(bundle)
        self._tell()

    async def credentials(self) -> AsyncGenerator[ClientCredentials, None]:
        """As soon as there are some, and again whenever there are others, for ever."""
        told: ClientCredentials | None = None
        while True:
            news, now = self._news, self._now()
            if now is None or now == told:
                await news.wait()
                continue
            told = now
            yield now

    def _now(self) -> ClientCredentials | None:
        held = self._certified
        if held is None or not self._bundle:
            return None
        return ClientCredentials("".join(held.chain).encode(), held.key.secret_pem(), "".join(self._bundle).encode())

    async def _who(self) -> Identity:
        """Without a token there is nothing to do but to wait for one."""
        said = ""
        while True:
            try:
                return identity_in(await self.token(), self._trust_domain)
            except (OSError, ValueError) as error:
                if str(error) != said:
                    said = str(error)
                    log.error("%s does not say who this agent is: %s", self._file, error)
            await asyncio.sleep(_RETRY)

    def _publish(self, fresh: Certified) -> None:
        self._certified = fresh
        self._tell()

    def _tell(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()
