"""Parses a compact JWS, more strictly than the standard requires, and verifies its signature with one of the
configured keys.

Input: the token's text. Output: its claims. Rule: the header only selects among the configured keys. A header that
could name another key, another algorithm or another interpretation of the payload is rejected, and so is everything
that two parsers could interpret differently.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

import jwt
import msgspec

from weft.ca.tokens import TokenReason, TokenRefused

LONGEST_TOKEN = 16 * 1024  # characters; a pod's token from Kubernetes has about 1,100
_LONGEST_HEADER = 1024
_COMPACT = re.compile(r"([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)", re.ASCII)
_HEADER = frozenset({"alg", "kid", "typ"})


class TokenKey(msgspec.Struct, frozen=True):
    """A public key that verifies tokens with `algorithms` and no others. `key_id`: the id (`kid`) of the tokens that
    the key verifies; a key without an id is tried for every token."""

    key: Any
    algorithms: tuple[str, ...]
    key_id: str | None = None


def verified_claims(token: str, keys: Sequence[TokenKey]) -> dict[str, Any]:
    """Return the claims of a token after verifying its signature with one of `keys`. Raises TokenRefused."""
    if not token:
        raise TokenRefused(TokenReason.MISSING, "the request has no token")
    if len(token) > LONGEST_TOKEN:
        raise TokenRefused(TokenReason.TOO_LONG, f"the token is longer than {LONGEST_TOKEN} characters")
    parts = _COMPACT.fullmatch(token)
    if parts is None:
        raise TokenRefused(TokenReason.MALFORMED, "the token is not three base64url parts with dots between them")
    if len(parts[1]) > _LONGEST_HEADER:
        raise TokenRefused(TokenReason.TOO_LONG, f"the token's header is longer than {_LONGEST_HEADER} characters")
    algorithm, key_id = _read_header(_object(parts[1], "header"))
    candidates = _candidates(keys, algorithm, key_id)
    if not any(_is_signed(token, key, algorithm) for key in candidates):
        raise TokenRefused(TokenReason.SIGNATURE, "the token is not signed with a trusted key")
    return _object(parts[2], "claims")


def _read_header(header: dict[str, Any]) -> tuple[str, str | None]:
    if surplus := sorted(header.keys() - _HEADER):
        shown = ", ".join(name[:20] for name in surplus[:5])
        raise TokenRefused(TokenReason.HEADER, f"the token's header has {shown!a}; only alg, kid and typ are allowed")
    algorithm, key_id, kind = header.get("alg"), header.get("kid"), header.get("typ", "JWT")
    if not isinstance(algorithm, str):
        raise TokenRefused(TokenReason.ALGORITHM, "the token's header has no signature algorithm (alg)")
    if ("kid" in header and not isinstance(key_id, str)) or not isinstance(kind, str) or kind.upper() != "JWT":
        raise TokenRefused(
            TokenReason.HEADER, "the token's header is not a JWT's: kid must be a string, and typ must be JWT"
        )
    return algorithm, key_id


def _candidates(keys: Iterable[TokenKey], algorithm: str, key_id: str | None) -> list[TokenKey]:
    able = [key for key in keys if algorithm in key.algorithms]
    if not able:
        raise TokenRefused(TokenReason.ALGORITHM, f"no trusted key uses the token's algorithm {algorithm[:20]!a}")
    named = [key for key in able if key_id is None or key.key_id in (None, key_id)]
    if not named:
        raise TokenRefused(TokenReason.UNKNOWN_KEY, "the token's key id (kid) is unknown")
    return named


def _is_signed(token: str, key: TokenKey, algorithm: str) -> bool:
    try:
        jwt.PyJWS(algorithms=[algorithm]).decode(token, key.key, algorithms=[algorithm])
    except (jwt.PyJWTError, ValueError, TypeError):
        return False
    return True


def _object(segment: str, what: str) -> dict[str, Any]:
    try:
        text = base64.b64decode(segment + "=" * (-len(segment) % 4), altchars=b"-_", validate=True)
        value = json.loads(text.decode(), object_pairs_hook=_unique, parse_constant=_no_constant)
    except (ValueError, RecursionError, binascii.Error) as error:
        raise TokenRefused(TokenReason.MALFORMED, f"the token's {what} cannot be read as one JSON object") from error
    if not isinstance(value, dict):
        raise TokenRefused(TokenReason.MALFORMED, f"the token's {what} is not a JSON object")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("duplicate name")
    return value


def _no_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is not JSON")
