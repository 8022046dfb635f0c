"""The control plane's own TLS certificate, issued by its own authority and renewed before it expires, without
closing listeners.

gRPC reads the certificate at every new connection, from one of gRPC's threads. That thread reads a single attribute,
which the event loop replaces as a whole.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from datetime import timedelta

import grpc

from weft.ca.authority import Authority
from weft.ca.certificates import key_pem, new_key
from weft.ca.error import AuthorityError

log = logging.getLogger("weft.ca")

# The names under which agents connect to a control plane: Istio's and weft's.
NAMES = (
    "istiod.istio-system.svc",
    "istiod.istio-system.svc.cluster.local",
    "istiod.istio-system",
    "weft-control.weft-system.svc",
    "weft-control.weft-system.svc.cluster.local",
    "weft-control.weft-system",
    "weft-control",
    "localhost",
    "127.0.0.1",
    "::1",
)
_RENEW_AFTER = 2 / 3  # of the lifetime
_RETRY_SECONDS = 5.0


class ServingCertificate:
    def __init__(self, authority: Authority, names: tuple[str, ...] = (), *, lifetime: timedelta | None = None) -> None:
        """Issue the first certificate, for the names in the constant `NAMES` and in `names`. Raises AuthorityError.
        `lifetime`: that of each certificate; None for the authority's default."""
        self._authority = authority
        self._names = tuple(dict.fromkeys((*NAMES, *names)))
        self._lifetime = lifetime
        self._due = asyncio.Event()
        self.changed: Callable[[], None] = lambda: None  # called after each renewal
        self.pem = (b"", b"")  # the certificate's key and chain
        self._current = self._make()

    def credentials(self) -> grpc.ServerCredentials:
        """Return credentials for a gRPC server. gRPC supports only TLS 1.2 and later. Clients authenticate with a
        token, not with a certificate."""
        # Every handshake uses the current certificate, so no listener must be reopened.
        return grpc.dynamic_ssl_server_credentials(
            self._current, lambda: self._current, require_client_authentication=False
        )

    async def run(self) -> None:
        """Renew the certificate after two thirds of its lifetime, and when the signing root changes, until
        cancelled."""
        unsubscribe: Callable[[], None] = self._authority.subscribe(self._due.set)
        try:
            while True:
                try:
                    async with asyncio.timeout(max(0.0, self._renew_at - time.monotonic())):
                        await self._due.wait()
                except TimeoutError:
                    pass
                self._due.clear()
                self._renew()
        finally:
            unsubscribe()

    def _renew(self) -> None:
        try:
            self._current = self._make()
        except AuthorityError as error:
            log.error("the CA's own certificate cannot be renewed: %s", error)
            self._renew_at = time.monotonic() + _RETRY_SECONDS
            return
        self.changed()

    def _make(self) -> grpc.ServerCertificateConfiguration:
        key = new_key()
        issued = self._authority.sign_server(key.public_key(), self._names, self._lifetime)
        life = (issued.expires - issued.issued).total_seconds()
        self._renew_at = time.monotonic() + life * _RENEW_AFTER
        self.pem = (key_pem(key).encode(), "".join(issued.chain).encode())
        return grpc.ssl_server_certificate_configuration([self.pem])
