"""Validates a JSON Web Key Set that is inline in an object. Input: its text. Output: the keys with only their public
parts, or what is wrong with them. Rule: a message never contains a part of a key that might be secret."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

MOST_CHARACTERS = 128 << 10
MOST_KEYS = 100

_SECRET = ("d", "p", "q", "dp", "dq", "qi", "oth", "k")
_CURVES = {"P-256": 32, "P-384": 48, "P-521": 66}  # each with the length of a coordinate, in bytes
_ALGORITHMS = {
    "RSA": ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    "P-256": ("ES256",),
    "P-384": ("ES384",),
    "P-521": ("ES512",),
    "Ed25519": ("EdDSA",),
}
_LEAST_RSA_BITS = 2048  # shorter keys are considered insecure since 2013 (NIST SP 800-131A)
_MOST_RSA_BITS = 8192
_EXPONENTS = (3, 65537)  # the only exponents that Envoy's TLS library accepts, as tested
_GENERATE = "replace this key pair everywhere it is used; only the public part belongs here"


class KeyFlaw(NamedTuple):
    what: str
    hint: str = ""


def read_key_set(text: str) -> str | KeyFlaw:
    """Return the key set as JSON, with only the public parts of its keys. If it is not valid, return a KeyFlaw that
    describes the mistake. Never raises."""
    if len(text) > MOST_CHARACTERS:
        return KeyFlaw(f"`jwks` is longer than {MOST_CHARACTERS} characters", "publish the keys and use `jwksUri`")
    try:
        document = json.loads(text, object_pairs_hook=_once)
    except (ValueError, RecursionError):
        return KeyFlaw("`jwks` is not JSON", 'a key set is {"keys": [...]}, see RFC 7517')
    keys = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(keys, list):
        return KeyFlaw("`jwks` has no list of `keys`", 'a key set is {"keys": [...]}, see RFC 7517')
    if not 1 <= len(keys) <= MOST_KEYS:
        return KeyFlaw(f"`jwks` must have between 1 and {MOST_KEYS} keys, not {len(keys)}")
    public = []
    for number, key in enumerate(keys):
        public_key = _public(key) if isinstance(key, dict) else KeyFlaw("is not a JSON object")
        if isinstance(public_key, KeyFlaw):
            return KeyFlaw(f"key {number} of `jwks` {public_key.what}", public_key.hint)
        public.append(public_key)
    return json.dumps({"keys": public}, separators=(",", ":"))


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the members of a JSON object (`pairs`: its names and values in order). Raises ValueError for duplicate
    names: some parsers use the first of two members, others the last."""
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError
    return members


def _public(key: Mapping[str, Any]) -> dict[str, str] | KeyFlaw:
    if any(name in key for name in _SECRET) and key.get("kty") != "oct":
        return KeyFlaw("is a private key", _GENERATE)
    for name in ("kty", "kid", "use", "alg", "crv", "n", "e", "x", "y"):
        if name in key and not isinstance(key[name], str):
            return KeyFlaw(f"has a `{name}` that is not text")
    if len(key.get("kid", "")) > 1024:
        return KeyFlaw("has a `kid` longer than 1024 characters")
    if key.get("use", "sig") != "sig":
        return KeyFlaw("is not for signatures (`use` is not `sig`)", "remove the key: it cannot verify a token")
    match key.get("kty"):
        case "RSA":
            kind, parts = "RSA", _rsa(key)
        case "EC":
            kind, parts = key.get("crv", ""), _curve(key)
        case "OKP":
            kind, parts = key.get("crv", ""), _edwards(key)
        case "oct":
            return KeyFlaw(
                "is a shared secret (`kty: oct`): any workload that can verify a token could also forge one",
                "use an asymmetric key: RSA, EC or OKP; and replace the secret, because this object discloses it",
            )
        case _:
            return KeyFlaw("has an unsupported type", "`kty` must be RSA, EC or OKP")
    if isinstance(parts, KeyFlaw):
        return parts
    if "alg" in key and key["alg"] not in _ALGORITHMS[kind]:
        return KeyFlaw("has an `alg` that does not match its type", f"for this key: {', '.join(_ALGORITHMS[kind])}")
    return {name: key[name] for name in ("kty", "kid", "use", "alg") if name in key} | parts


def _rsa(key: Mapping[str, Any]) -> dict[str, str] | KeyFlaw:
    for name in ("n", "e"):
        if flaw := _flaw_of_number(name, key.get(name, "")):
            return flaw
    modulus, exponent = _number(key["n"]), _number(key["e"])
    if not _LEAST_RSA_BITS <= modulus.bit_length() <= _MOST_RSA_BITS:
        return KeyFlaw(f"has {modulus.bit_length()} bits", f"use at least {_LEAST_RSA_BITS}, at most {_MOST_RSA_BITS}")
    if exponent not in _EXPONENTS:
        return KeyFlaw("has an exponent `e` that Envoy does not accept", "65537 is `AQAB`, and 3 is `Aw`")
    if modulus % 2 == 0:
        return KeyFlaw("is not an RSA key: `n` is even")
    return {"n": key["n"], "e": key["e"]}


def _curve(key: Mapping[str, Any]) -> dict[str, str] | KeyFlaw:
    size = _CURVES.get(key.get("crv", ""))
    if size is None:
        return KeyFlaw("has an unsupported curve", f"`crv` must be one of {', '.join(_CURVES)}")
    if any(len(_bytes(key.get(name, ""))) != size for name in ("x", "y")):
        return KeyFlaw(f"needs `x` and `y` of {size} bytes each, in base64url")
    if not _is_on_curve(key["crv"], _number(key["x"]), _number(key["y"])):
        return KeyFlaw(f"is not a valid key: its point is not on {key['crv']}", "copy the key again")
    return {"crv": key["crv"], "x": key["x"], "y": key["y"]}


def _is_on_curve(name: str, x: int, y: int) -> bool:
    """Whether the point (x, y) is on the elliptic curve `name`, so that the key is valid. Envoy rejects a whole
    listener if a key set has no valid key. The cryptography library is imported here, because it is slow to
    import and few objects need it."""
    from cryptography.hazmat.primitives.asymmetric import ec

    curves = {"P-256": ec.SECP256R1(), "P-384": ec.SECP384R1(), "P-521": ec.SECP521R1()}
    try:
        ec.EllipticCurvePublicNumbers(x, y, curves[name]).public_key()
    except ValueError:
        return False
    return True


def _edwards(key: Mapping[str, Any]) -> dict[str, str] | KeyFlaw:
    if key.get("crv") != "Ed25519":
        return KeyFlaw("has an unsupported curve", "`crv` of an OKP key must be Ed25519")
    if len(_bytes(key.get("x", ""))) != 32:
        return KeyFlaw("needs an `x` of 32 bytes, in base64url")
    return {"crv": key["crv"], "x": key["x"]}


def _flaw_of_number(name: str, text: str) -> KeyFlaw | None:
    if not text:
        return KeyFlaw(f"lacks `{name}`")
    if len(text.rstrip("=")) % 4 == 1:
        return KeyFlaw(f"has an `{name}` that is truncated: no base64url has this length", "copy the key again")
    if not _bytes(text):
        return KeyFlaw(f"has an `{name}` that is not base64url")
    return None if _number(text) else KeyFlaw(f"has an `{name}` of 0")


def _number(text: str) -> int:
    return int.from_bytes(_bytes(text))


def _bytes(text: str) -> bytes:
    """Decode base64url; b"" if the text is not base64url."""
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return b""
