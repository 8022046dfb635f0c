"""What a caller shows to get a certificate, seen from the one who checks it.

A token comes in, a Caller leaves, or TokenRefused. On one machine tokens are signed by the local engine
(`signed_tokens.py`); on Kubernetes the API server reviews them. Rule: no message and no log line holds a token.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

import msgspec


class Caller(msgspec.Struct, frozen=True):
    """Who a token speaks for: a service account, in a pod."""

    namespace: str
    service_account: str
    pod: str = ""
    pod_uid: str = ""
    expires: float = 0.0  # unix seconds

    def __str__(self) -> str:
        pod = f" (pod {self.pod})" if self.pod else ""
        return f"{self.namespace}/{self.service_account}{pod}"


class TokenReason(StrEnum):
    MISSING = "token-missing"
    TOO_LONG = "token-too-long"
    MALFORMED = "token-malformed"
    ALGORITHM = "token-algorithm"
    HEADER = "token-header"  # one that could change which key is used or what is signed
    UNKNOWN_KEY = "token-unknown-key"
    SIGNATURE = "token-signature"
    CLAIMS = "token-claims"  # missing, or of the wrong type
    ISSUER = "token-issuer"
    AUDIENCE = "token-audience"
    EXPIRED = "token-expired"
    NOT_YET = "token-not-yet-valid"
    SUBJECT = "token-subject"
    NOT_BOUND = "token-not-bound-to-a-pod"
    REVOKED = "token-revoked"


class TokenRefused(Exception):
    def __init__(self, reason: TokenReason, message: str, caller: Caller | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.caller = caller  # only where the signature was good


class TokenChecker(Protocol):
    async def check(self, token: str) -> Caller:
        """Raises TokenRefused; CaUnavailable (`signer.py`) where another must be asked and does not answer."""
