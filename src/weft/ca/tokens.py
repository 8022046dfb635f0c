"""The interface of token checks. Input: a token. Output: a Caller, or TokenRefused.

On one machine the local engine signs the tokens (`signed_tokens.py`); on Kubernetes the API server reviews them.
Rule: no message and no log line contains a token.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

import msgspec


class Caller(msgspec.Struct, frozen=True):
    """The identity in a token: a service account, and the pod that the token is bound to (`pod`, `pod_uid`; "" if it is
    bound to none). `expires`: when the token expires, in Unix time."""

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
    HEADER = "token-header"  # a header that could change which key is used or what is signed
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
        self.caller = caller  # only set if the signature was valid


class TokenChecker(Protocol):
    async def check(self, token: str) -> Caller:
        """Return the caller that `token` identifies. Raises TokenRefused if the token is rejected, and CaUnavailable
        (`signer.py`) if the check needs another server that does not answer."""
