"""Where an agent gets certificates from, whether in this process (`service.py`) or over the network (`client.py`)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from enum import StrEnum
from typing import Protocol

from weft.ca.certificates import Issued

REASON = "weft-reason"  # where a refusal over gRPC has its reason for programs: in the trailing metadata


class SigningRefused(Exception):
    """The CA answered, and the answer is no. Asking again with the same things is of no use, but for a rate's sake."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason  # a TokenReason, a CsrReason or a ServiceReason


class CaUnavailable(Exception):
    """No answer, or one that makes no sense. Try again."""


class ServiceReason(StrEnum):
    RATE = "too-many-requests"
    AUTHORITY = "authority-cannot-sign"  # its own certificate has expired, and the like
    REQUEST = "request-malformed"
    OTHER = "refused"


class Signer(Protocol):
    async def create(self, token: str, csr: bytes, lifetime: timedelta | None = None) -> Issued:
        """Raises SigningRefused or CaUnavailable."""

    def bundles(self) -> AsyncIterator[tuple[str, ...]]:
        """The roots to trust, at once, and again whenever they change."""
