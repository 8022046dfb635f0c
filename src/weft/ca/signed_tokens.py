"""Signed tokens (JWTs): the issuer of the local engine's workload tokens, and a checker that verifies tokens with
public keys.

A token has the same claims as the token that Kubernetes projects into a pod, so one checker reads both. Rule: all
claims of a token must be consistent.
"""

from __future__ import annotations

import math
import re
import secrets
import time
from collections.abc import Callable, Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec

from weft.ca.jose import TokenKey, verified_claims
from weft.ca.token_keys import read_token_keys, token_key
from weft.ca.tokens import Caller, TokenReason, TokenRefused

AUDIENCE = "istio-ca"
ISSUER = "https://weft.local"
MOST_LEEWAY = timedelta(minutes=5)
_LEEWAY = timedelta(seconds=30)
_LIFETIME = timedelta(hours=12)  # what Istio requests from kubelet
_LABEL = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?")
_LONGEST_LABEL = 63
_LONGEST_NAME = 253
_LONGEST_UID = 128

Clock = Callable[[], float]


class SignedTokens:
    """Checks tokens with the issuer's public keys."""

    def __init__(
        self,
        keys: Iterable[TokenKey],
        *,
        issuer: str,
        audience: str = AUDIENCE,
        leeway: timedelta = _LEEWAY,
        is_revoked: Callable[[str], bool] = lambda pod_uid: False,
        clock: Clock = time.time,
    ) -> None:
        if not issuer or not audience:
            raise ValueError("tokens are checked against an issuer and an audience; neither may be empty")
        if not timedelta(0) <= leeway <= MOST_LEEWAY:
            raise ValueError(f"the leeway for clocks must be between 0 and {MOST_LEEWAY}")
        self._keys = tuple(keys)
        self._issuer = issuer
        self._audience = audience
        self._leeway = leeway.total_seconds()
        self._is_revoked = is_revoked
        self._clock = clock

    @classmethod
    def from_file(cls, path: Path, *, issuer: str, audience: str = AUDIENCE) -> SignedTokens:
        """Return a checker with the keys in the file at `path`: a JWKS, or public keys as PEM. Raises AuthorityError.
        The checker accepts only tokens of `issuer` for `audience`."""
        return cls(read_token_keys(path), issuer=issuer, audience=audience)

    async def check(self, token: str) -> Caller:
        return self.check_now(token)

    def check_now(self, token: str) -> Caller:
        claims = verified_claims(token, self._keys)
        caller = _caller(claims)
        if claims.get("iss") != self._issuer:
            raise TokenRefused(TokenReason.ISSUER, "the token is from another issuer", caller)
        if self._audience not in _audiences(claims):
            raise TokenRefused(TokenReason.AUDIENCE, f"the token's audience is not {self._audience!a}", caller)
        self._check_times(claims, caller)
        if self._is_revoked(caller.pod_uid):
            raise TokenRefused(
                TokenReason.REVOKED, "the pod that the token is bound to does not exist any more", caller
            )
        return caller

    def _check_times(self, claims: dict[str, Any], caller: Caller) -> None:
        now = self._clock()
        if now >= caller.expires + self._leeway:
            raise TokenRefused(TokenReason.EXPIRED, f"the token expired {now - caller.expires:.0f} s ago", caller)
        for name in ("nbf", "iat"):
            since = _time(claims, name) if name in claims else now
            if since > now + self._leeway:
                raise TokenRefused(
                    TokenReason.NOT_YET,
                    f"the token becomes valid in {since - now:.0f} s ({name}); compare the clocks of both machines",
                    caller,
                )


class TokenIssuer:
    """Issues tokens for pods, as kubelet does, until a pod is revoked. The signing key is generated here and kept in
    memory."""

    def __init__(self, *, issuer: str = ISSUER, clock: Clock = time.time) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._key_id = secrets.token_hex(8)
        self._issuer = issuer
        self._clock = clock
        self._valid_until: dict[str, float] = {}  # by pod UID, the last expiry of its tokens
        self._revoked: dict[str, float] = {}

    def issue(self, caller: Caller, *, audience: str = AUDIENCE, lifetime: timedelta = _LIFETIME) -> str:
        """Return a token for `audience`, valid for `lifetime` and bound to the caller's pod; `caller.expires` is
        ignored. Raises ValueError if the caller has no pod, if the pod was revoked, or if its names are not valid in a
        token."""
        if not caller.pod or not caller.pod_uid:
            raise ValueError("a token is bound to a pod: its name and UID are needed")
        if self._is_revoked(caller.pod_uid):
            raise ValueError(f"pod {caller.pod} with this UID does not exist any more; a new pod has a new UID")
        now = self._clock()
        expires = math.ceil(now + lifetime.total_seconds())
        claims = {
            "iss": self._issuer,
            "aud": [audience],
            "sub": f"system:serviceaccount:{caller.namespace}:{caller.service_account}",
            "exp": expires,
            "iat": int(now),
            "nbf": int(now),
            "jti": secrets.token_hex(16),
            "kubernetes.io": {
                "namespace": caller.namespace,
                "serviceaccount": {"name": caller.service_account, "uid": ""},
                "pod": {"name": caller.pod, "uid": caller.pod_uid},
            },
        }
        try:
            _caller(claims)
        except TokenRefused as refused:
            raise ValueError(f"every checker would reject this token: {refused}") from refused
        self._valid_until[caller.pod_uid] = max(expires, self._valid_until.get(caller.pod_uid, 0))
        return jwt.encode(claims, self._key, algorithm="ES256", headers={"kid": self._key_id})

    def revoke(self, pod_uid: str) -> None:
        """Reject the tokens of a pod from now on, because the pod has been removed."""
        now = self._clock()
        kept = now - MOST_LEEWAY.total_seconds()
        self._revoked = {uid: until for uid, until in self._revoked.items() if until > kept}
        if (until := self._valid_until.pop(pod_uid, None)) is not None:
            self._revoked[pod_uid] = until

    def checker(self, *, audience: str = AUDIENCE, leeway: timedelta = _LEEWAY) -> SignedTokens:
        return SignedTokens(
            [token_key(self._key.public_key(), self._key_id)],
            issuer=self._issuer,
            audience=audience,
            leeway=leeway,
            is_revoked=self._is_revoked,
            clock=self._clock,
        )

    def _is_revoked(self, pod_uid: str) -> bool:
        return pod_uid in self._revoked


def _caller(claims: dict[str, Any]) -> Caller:
    """Return the identity and the pod in the claims. Raises TokenRefused if a claim is missing, or two claims
    contradict each other."""
    bound = claims.get("kubernetes.io")
    if not isinstance(bound, dict):
        raise TokenRefused(TokenReason.CLAIMS, "the token has no kubernetes.io claims")
    namespace: Any = bound.get("namespace")
    account = _named(bound, "serviceaccount", TokenReason.CLAIMS)
    if not _is_name(namespace) or "." in namespace or len(namespace) > _LONGEST_LABEL:
        raise TokenRefused(TokenReason.CLAIMS, "the token's namespace is not a valid Kubernetes name")
    if not _is_name(account.get("name")):
        raise TokenRefused(TokenReason.CLAIMS, "the token's service account is not a valid Kubernetes name")
    name = account["name"]
    if claims.get("sub") != f"system:serviceaccount:{namespace}:{name}":
        raise TokenRefused(TokenReason.SUBJECT, "the token's subject is not the service account that it is bound to")
    pod = _named(bound, "pod", TokenReason.NOT_BOUND)
    uid = pod.get("uid")
    if not _is_name(pod.get("name")) or not isinstance(uid, str) or not 0 < len(uid) <= _LONGEST_UID:
        raise TokenRefused(TokenReason.NOT_BOUND, "the token has no valid pod name and UID")
    return Caller(namespace, name, pod["name"], uid, _time(claims, "exp"))


def _named(bound: dict[str, Any], name: str, reason: TokenReason) -> dict[str, Any]:
    value = bound.get(name)
    if not isinstance(value, dict):
        raise TokenRefused(reason, f"the token is not bound to a {name}")
    return value


def _is_name(value: Any) -> bool:
    return (
        isinstance(value, str)
        and len(value) <= _LONGEST_NAME
        and all(_LABEL.fullmatch(label) for label in value.split("."))
    )


def _audiences(claims: dict[str, Any]) -> tuple[str, ...]:
    value = claims.get("aud")
    if isinstance(value, str):
        return (value,)
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return tuple(value)
    raise TokenRefused(TokenReason.CLAIMS, "the token has no valid audience (aud)")


def _time(claims: dict[str, Any], name: str) -> float:
    value = claims.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TokenRefused(TokenReason.CLAIMS, f"the token's {name} is not a time")
    if not 0 <= value < 1 << 40:  # excludes infinity and dates beyond the year 36812
        raise TokenRefused(TokenReason.CLAIMS, f"the token's {name} is out of range")
    return float(value)
