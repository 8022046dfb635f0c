"""Forged tokens, built by hand piece by piece."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature


def encode(value) -> str:
    raw = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def es256(key, header, claims) -> str:
    """Return a token with a valid signature, whatever the header and claims contain. Both may be bytes."""
    signed = f"{encode(header)}.{encode(claims)}"
    r, s = decode_dss_signature(key.sign(signed.encode(), ec.ECDSA(hashes.SHA256())))
    return f"{signed}.{encode(r.to_bytes(32, 'big') + s.to_bytes(32, 'big'))}"


def hs256(secret: bytes, header, claims) -> str:
    signed = f"{encode(header)}.{encode(claims)}"
    return f"{signed}.{encode(hmac.new(secret, signed.encode(), hashlib.sha256).digest())}"


def public_pem(key) -> bytes:
    return key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
