"""The agent's own identity towards the control plane: a certificate that the agent requests with its own token, in
the same way as it requests certificates for workloads.

Input: a token file that kubelet keeps fresh. Output: TLS client credentials, and new ones whenever the certificate
or the roots change. Rule: no part of the credentials appears in a log or an error.
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
_RETRY = 1.0  # seconds between reads of a token file without a valid token
_MOST_DELAY = 5.0  # seconds between attempts: without this certificate, no pod of the machine gets new config


class ClientCredentials(msgspec.Struct, frozen=True):
    """TLS client credentials of the agent, all in PEM."""

    chain: bytes  # the leaf first
    key: bytes
    roots: bytes  # that verify the server

    def __repr__(self) -> str:
        return "<credentials>"


class OwnIdentity:
    """The agent's own certificate. There are no credentials until `trust` has been called with the roots."""

    def __init__(self, token_file: Path, signer: Signer, *, trust_domain: str, lifetime: timedelta = LIFETIME) -> None:
        self.token = token_in(token_file)
        self._file, self._signer, self._trust_domain, self._lifetime = token_file, signer, trust_domain, lifetime
        self._kept: KeptIdentity | None = None
        self._certified: Certified | None = None
        self._bundle: tuple[str, ...] = ()
        self._changed = asyncio.Event()

    @property
    def status(self) -> IdentityStatus | None:
        return self._kept.status if self._kept is not None else None

    @property
    def held(self) -> ClientCredentials | None:
        return self._now()

    async def run(self) -> None:
        """Get and renew the certificate until cancelled."""
        bearer = Bearer(name=_NAME, identity=await self._identity(), token=self.token)
        self._kept = KeptIdentity(
            bearer, self._signer, publish=self._publish, lifetime=self._lifetime, most_delay=_MOST_DELAY
        )
        self._kept.trust(self._bundle)
        await self._kept.run()

    def trust(self, bundle: tuple[str, ...]) -> None:
        self._bundle = bundle
        if self._kept is not None:
            self._kept.trust(bundle)
        self._notify()

    async def credentials(self) -> AsyncGenerator[ClientCredentials, None]:
        """Yield the current credentials as soon as there are any, and again after each change, without end."""
        sent: ClientCredentials | None = None
        while True:
            news, now = self._changed, self._now()
            if now is None or now == sent:
                await news.wait()
                continue
            sent = now
            yield now

    def _now(self) -> ClientCredentials | None:
        certified = self._certified
        if certified is None or not self._bundle:
            return None
        return ClientCredentials(
            "".join(certified.chain).encode(), certified.key.secret_pem(), "".join(self._bundle).encode()
        )

    async def _identity(self) -> Identity:
        """Return the identity in the agent's token; wait and retry until the file has a valid token."""
        logged = ""
        while True:
            try:
                return identity_in(await self.token(), self._trust_domain)
            except (OSError, ValueError) as error:
                if str(error) != logged:
                    logged = str(error)
                    log.error("%s has no valid token of this agent: %s", self._file, error)
            await asyncio.sleep(_RETRY)

    def _publish(self, fresh: Certified) -> None:
        self._certified = fresh
        self._notify()

    def _notify(self) -> None:
        news, self._changed = self._changed, asyncio.Event()
        news.set()
