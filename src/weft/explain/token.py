"""Parses a JWT like Envoy, and returns its claims or Envoy's error message. Verifies its signature if the keys are
known.

Rule: the parser accepts every token that Envoy accepts, although Envoy is laxer than the standard. The library for
signatures is imported only when needed: it is slow to import, and few requests carry a token.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from weft.explain.request import Token

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.hashes import HashAlgorithm

FORGED = "Jwt verification fails"
_NO_SUCH_KEY = "Jwks doesn't have key to match kid or alg from Jwt"
_WRONG_LENGTH = "Jwt ED25519 signature is wrong length"
_FORM = "Jwt is not in the form of Header.Payload.Signature with two dots and 3 sections"
_ENCODED = re.compile(r"[A-Za-z0-9_-]*")
_ALGORITHMS = frozenset({f"{kind}{size}" for kind in ("ES", "HS", "RS", "PS") for size in (256, 384, 512)} | {"EdDSA"})
_MOST = 1 << 64  # limit of the times in a token: `iat`, `nbf`, `exp`
_ED25519_BYTES = 64


def read_token(text: str) -> Token:
    """Parses a JWT. Does not verify the signature. If the text is not a valid JWT, `Token.malformed` is Envoy's
    error."""
    parts = [part for part in text.split(".") if part]
    if len(parts) != 3:
        return Token(text, malformed=_FORM)
    header = _opened(parts[0], "header")
    wrong = header if isinstance(header, str) else _wrong_header(header)
    if wrong:
        return Token(text, malformed=wrong)
    claims = _opened(parts[1], "payload")
    if isinstance(claims, str):
        return Token(text, malformed=claims)
    wrong = _wrong_claims(claims)
    if not wrong and _decoded(parts[2]) is None:
        wrong = "Jwt signature is an invalid Base64url encoded"
    return Token(text, malformed=wrong) if wrong else Token(text, claims, signed=True)


def wrong_signature(text: str, key_set: str) -> str:
    """Envoy's error about the signature of a parsed token; "" if one of the keys in `key_set` (a JWKS) signed the
    token."""
    head, payload, signature = (part for part in text.split(".") if part)
    header, signed = json.loads(_decoded(head) or b""), f"{head}.{payload}".encode()
    wrong = _NO_SUCH_KEY
    for key in json.loads(key_set).get("keys", ()):
        if header.get("kid") and key.get("kid") and header["kid"] != key["kid"]:
            continue
        if key.get("alg", header["alg"]) != header["alg"]:
            continue
        wrong = FORGED
        given = _decoded(signature) or b""
        if key.get("kty") == "OKP" and len(given) != _ED25519_BYTES:
            return _WRONG_LENGTH
        if _has_signed(key, header["alg"], signed, given):
            return ""
    return wrong


def _wrong_header(header: Mapping[str, Any]) -> str:
    if not isinstance(header.get("alg"), str):
        return "Jwt header [alg] field is required and must be a string"
    if header["alg"] not in _ALGORITHMS:
        return "Jwt header [alg] is not supported"
    return "" if isinstance(header.get("kid", ""), str) else "Jwt header [kid] field is not a string"


def _wrong_claims(claims: Mapping[str, Any]) -> str:
    for name in ("iss", "sub"):
        if not isinstance(claims.get(name, ""), str):
            return f"Jwt payload [{name}] field is not a string"
    for name in ("iat", "nbf", "exp"):
        value = claims.get(name, 0)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return f"Jwt payload [{name}] field is not an integer"
        if not 0 <= value < _MOST:
            return f"Jwt payload [{name}] field is not a positive 64 bit integer"
    if not isinstance(claims.get("jti", ""), str):
        return "Jwt payload [jti] field is not a string"
    audiences = claims.get("aud", [])
    listed = audiences if isinstance(audiences, list) else [audiences]
    if all(isinstance(each, str) for each in listed):
        return ""
    return "Jwt payload [aud] field is not a string or string list"


def _opened(part: str, name: str) -> dict[str, Any] | str:
    """The JSON object in one part of a token, or Envoy's error message. `name`: the name of the part in that
    message."""
    decoded = _decoded(part)
    if decoded is None:
        return f"Jwt {name} is an invalid Base64url encoded"
    try:
        document = json.loads(decoded)
    except (ValueError, RecursionError):
        document = None
    return document if isinstance(document, dict) else f"Jwt {name} is an invalid JSON"


def _decoded(part: str) -> bytes | None:
    part = "".join(part.split())  # Envoy ignores whitespace
    if not _ENCODED.fullmatch(part):
        return None
    try:
        return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
    except binascii.Error:
        return None


def _has_signed(key: Mapping[str, str], algorithm: str, signed: bytes, signature: bytes) -> bool:
    from cryptography.exceptions import InvalidSignature

    try:
        _verify(key, algorithm, signed, signature)
    except (InvalidSignature, KeyError, ValueError):
        return False
    return True


def _verify(key: Mapping[str, str], algorithm: str, signed: bytes, signature: bytes) -> None:
    """Verifies the signature of the bytes `signed` with a JWK (`key`). Raises InvalidSignature if it is wrong, or
    ValueError if the key is invalid."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa, utils

    hashed_by = _hash(algorithm, key.get("kty", ""))
    match key.get("kty"), algorithm[:2]:
        case "RSA", "RS":
            public = rsa.RSAPublicNumbers(_number(key, "e"), _number(key, "n")).public_key()
            public.verify(signature, signed, padding.PKCS1v15(), hashed_by)
        case "RSA", "PS":
            public = rsa.RSAPublicNumbers(_number(key, "e"), _number(key, "n")).public_key()
            any_salt = padding.PSS(padding.MGF1(hashed_by), padding.PSS.AUTO)
            public.verify(signature, signed, any_salt, hashed_by)
        case "EC", _:
            curves = {"P-256": ec.SECP256R1(), "P-384": ec.SECP384R1(), "P-521": ec.SECP521R1()}
            numbers = ec.EllipticCurvePublicNumbers(_number(key, "x"), _number(key, "y"), curves[key["crv"]])
            half = len(signature) // 2
            halves = int.from_bytes(signature[:half]), int.from_bytes(signature[half : 2 * half])
            numbers.public_key().verify(utils.encode_dss_signature(*halves), signed, ec.ECDSA(hashed_by))
        case "OKP", _:
            point = _decoded(key["x"]) or b""
            ed25519.Ed25519PublicKey.from_public_bytes(point).verify(signature, signed)
        case _:
            raise InvalidSignature


def _hash(algorithm: str, key_type: str) -> HashAlgorithm:
    """The hash function that Envoy uses to verify a signature. The digits in the algorithm's name decide (`RS384`:
    SHA-384), but SHA-256 is used if the algorithm belongs to another type of key than `key_type`."""
    from cryptography.hazmat.primitives import hashes

    kinds = ("ES",) if key_type == "EC" else ("RS", "PS")
    if algorithm[:2] in kinds and algorithm.endswith("384"):
        return hashes.SHA384()
    return hashes.SHA512() if algorithm[:2] in kinds and algorithm.endswith("512") else hashes.SHA256()


def _number(key: Mapping[str, str], name: str) -> int:
    return int.from_bytes(_decoded(key[name].rstrip("=")) or b"")
