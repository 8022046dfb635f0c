"""Reads the public keys that verify tokens, from a JWKS or PEM. Output: keys with their allowed algorithms.

Rule: the algorithm follows from the kind of key. Shared secrets and private keys are rejected.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jwt
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from weft.ca.error import AuthorityError
from weft.ca.jose import TokenKey

_MOST_KEYS = 64
_MOST_BYTES = 256 * 1024
_SMALLEST_RSA = 2048
_BY_CURVE = {"secp256r1": ("ES256",), "secp384r1": ("ES384",), "secp521r1": ("ES512",)}
_HINT = "pass the JWKS or the public keys (PEM) of the token issuer; for a cluster: kubectl get --raw /openid/v1/jwks"


def read_token_keys(path: Path) -> tuple[TokenKey, ...]:
    """Return the keys in the file at `path`, a JWKS or PEM. Raises AuthorityError."""
    try:
        with path.open("rb") as file:
            text = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise AuthorityError(f"the file cannot be read: {error.strerror}", _HINT, file=path) from error
    if len(text) > _MOST_BYTES:
        raise AuthorityError(f"the file is larger than {_MOST_BYTES // 1024} KiB", _HINT, file=path)
    try:
        keys = _from_jwks(text) if text.lstrip().startswith(b"{") else _from_pem(text)
    except (
        ValueError,
        TypeError,
        KeyError,
        AttributeError,
        RecursionError,
        UnsupportedAlgorithm,
        jwt.PyJWTError,
    ) as error:
        raise AuthorityError(f"the file contains no usable keys: {_brief(error)}", _HINT, file=path) from error
    if not keys:
        raise AuthorityError("the file contains no public key for tokens", _HINT, file=path)
    if len(keys) > _MOST_KEYS:
        raise AuthorityError(f"the file contains more than {_MOST_KEYS} keys", _HINT, file=path)
    return keys


def token_key(key: Any, key_id: str | None = None) -> TokenKey:
    """Return `key` as a TokenKey, with the algorithms that it may verify. `key_id`: the key's `kid`, or None if it
    has none. Raises ValueError for a kind of key that is not allowed."""
    if isinstance(key, rsa.RSAPublicKey):
        if key.key_size < _SMALLEST_RSA:
            raise ValueError(f"an RSA key of {key.key_size} bits is too weak; the minimum is {_SMALLEST_RSA}")
        return TokenKey(key, ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), key_id)
    if isinstance(key, ec.EllipticCurvePublicKey) and key.curve.name in _BY_CURVE:
        return TokenKey(key, _BY_CURVE[key.curve.name], key_id)
    if isinstance(key, ed25519.Ed25519PublicKey):
        return TokenKey(key, ("EdDSA",), key_id)
    raise ValueError("only public RSA, P-256, P-384, P-521 and Ed25519 keys are supported")


def _from_jwks(text: bytes) -> tuple[TokenKey, ...]:
    """Return the keys of a JWKS. Keys of unknown kinds are skipped, as the JWKS standard requires. Raises ValueError
    if there is a secret or private key."""
    keys = []
    for entry in json.loads(text)["keys"]:
        kind, key_id = entry.get("kty"), entry.get("kid")
        if kind == "oct" or "d" in entry:
            raise ValueError("the file contains a secret or private key")
        if kind not in ("RSA", "EC", "OKP") or entry.get("use", "sig") != "sig":
            continue
        if not (key_id is None or isinstance(key_id, str)):
            raise ValueError("a key id (kid) is not a string")
        keys.append(token_key(jwt.PyJWK(entry).key, key_id))
    return tuple(keys)


def _from_pem(text: bytes) -> tuple[TokenKey, ...]:
    keys = []
    for block in text.split(b"-----BEGIN ")[1:]:
        pem = b"-----BEGIN " + block
        if b"PRIVATE KEY" in block.partition(b"\n")[0]:
            raise ValueError("the file contains a private key")
        if block.startswith(b"CERTIFICATE-----"):
            keys.append(token_key(x509.load_pem_x509_certificate(pem).public_key()))
        else:
            keys.append(token_key(serialization.load_pem_public_key(pem)))
    return tuple(keys)


def _brief(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
