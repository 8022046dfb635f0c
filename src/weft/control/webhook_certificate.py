"""The certificate with which webhooks are served: made by the mesh's own authority, renewed on the open listener.

An authority comes in, an SSLContext leaves whose certificate is always good. Python's ssl reads keys from files only;
the file is one in memory, which has no name and is gone when it has been read.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
import time

from weft.ca.authority import Authority
from weft.ca.certificates import key_pem, new_key
from weft.ca.error import AuthorityError

log = logging.getLogger("weft.control.webhook_certificate")

_RENEW_AFTER = 2 / 3  # of a life
_RETRY_SECONDS = 5.0


class WebhookCertificate:
    def __init__(self, authority: Authority, names: tuple[str, ...]) -> None:
        """`names`: by which the API server calls. Raises AuthorityError."""
        self._authority = authority
        self._names = names
        self._due = asyncio.Event()
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._renew_at = self._make()

    async def run(self) -> None:
        """Until cancelled: another one when two thirds of a life are over, and when another root signs."""
        unsubscribe = self._authority.subscribe(self._due.set)
        try:
            while True:
                try:
                    async with asyncio.timeout(max(0.0, self._renew_at - time.monotonic())):
                        await self._due.wait()
                except TimeoutError:
                    pass
                self._due.clear()
                try:
                    self._renew_at = self._make()
                except (AuthorityError, ssl.SSLError, OSError) as error:
                    log.error("the webhooks' certificate cannot be renewed: %s", error)
                    self._renew_at = time.monotonic() + _RETRY_SECONDS
        finally:
            unsubscribe()

    def _make(self) -> float:
        key = new_key()
        issued = self._authority.sign_server(key.public_key(), self._names)
        _load(self.context, f"{key_pem(key)}{''.join(issued.chain)}")
        life = (issued.expires - issued.issued).total_seconds()
        return time.monotonic() + life * _RENEW_AFTER


def _load(context: ssl.SSLContext, pem: str) -> None:
    """Handshakes from now on show it."""
    descriptor = os.memfd_create("certificate", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, pem.encode())
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)
