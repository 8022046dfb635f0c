"""The interface through which the agent requests certificates. It is implemented by the CA in this process
(`service.py`) and by the client of a CA on the network (`client.py`)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from enum import StrEnum
from typing import Protocol

from weft.ca.certificates import Issued

REASON = "weft-reason"  # trailing metadata of a gRPC error: the reason of a rejection, for programs


class SigningRefused(Exception):
    """The CA rejected the request. Retrying the same request does not help, unless it was rejected by the rate limit
    (ServiceReason.RATE)."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason  # a TokenReason, a CsrReason or a ServiceReason


class CaUnavailable(Exception):
    """The CA did not answer, or its answer is invalid. The request may be retried."""


class ServiceReason(StrEnum):
    RATE = "too-many-requests"
    AUTHORITY = "authority-cannot-sign"  # for example, the CA's own certificate has expired
    REQUEST = "request-malformed"
    OTHER = "refused"


class Signer(Protocol):
    async def create(self, token: str, csr: bytes, lifetime: timedelta | None = None) -> Issued:
        """Return a certificate for the token's identity and the key of the CSR. Raises SigningRefused or CaUnavailable.
        `lifetime`: the requested lifetime; None for the default."""

    def bundles(self) -> AsyncIterator[tuple[str, ...]]:
        """Yield the roots to trust, as PEM: the current ones at once, and all roots again whenever they change."""
