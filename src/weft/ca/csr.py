"""Reads the public key of a certificate signing request and verifies that the sender has the private key. Nothing
else in the CSR is used.

Input: PEM. Output: a public key, or CsrRefused. Rule: sizes are checked before any expensive operation.
"""

from __future__ import annotations

from enum import StrEnum

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

LONGEST_CSR = 16 * 1024  # bytes; a CSR for an RSA key of 4096 bits has about 1,700
_BEGIN = b"-----BEGIN "
_HASHES = (hashes.SHA256, hashes.SHA384, hashes.SHA512)
_CURVES = (ec.SECP256R1, ec.SECP384R1)
_RSA_BITS = (2048, 4096)
_RSA_EXPONENTS = (65_537, 2**32)

PublicKey = rsa.RSAPublicKey | ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey


class CsrReason(StrEnum):
    TOO_LONG = "csr-too-long"
    MALFORMED = "csr-malformed"
    KEY = "csr-key"  # a kind or size of key that weft does not sign
    SIGNATURE = "csr-signature"
    LIFETIME = "csr-lifetime"


class CsrRefused(Exception):
    def __init__(self, reason: CsrReason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def read_public_key(csr_pem: bytes) -> PublicKey:
    """Return the public key of a CSR after verifying its signature. Raises CsrRefused."""
    if len(csr_pem) > LONGEST_CSR:
        raise CsrRefused(CsrReason.TOO_LONG, f"the CSR is longer than {LONGEST_CSR} bytes")
    if csr_pem.count(_BEGIN) != 1:
        raise CsrRefused(CsrReason.MALFORMED, "the CSR is not one PEM block `CERTIFICATE REQUEST`")
    try:
        csr = x509.load_pem_x509_csr(csr_pem)
    except (ValueError, TypeError, UnsupportedAlgorithm, x509.InvalidVersion) as error:
        raise CsrRefused(CsrReason.MALFORMED, "the CSR cannot be read as a PKCS #10 request in PEM") from error
    key = _allowed(csr)
    _check_signature(csr)
    return key


def _allowed(csr: x509.CertificateSigningRequest) -> PublicKey:
    try:
        key = csr.public_key()
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise CsrRefused(CsrReason.KEY, "the CSR's public key is invalid or of an unknown kind") from error
    if isinstance(key, rsa.RSAPublicKey):
        least, most = _RSA_BITS
        if not least <= key.key_size <= most:
            raise CsrRefused(CsrReason.KEY, f"the RSA key has {key.key_size} bits; it must have {least} to {most}")
        exponent = key.public_numbers().e
        if exponent % 2 == 0 or not _RSA_EXPONENTS[0] <= exponent < _RSA_EXPONENTS[1]:
            raise CsrRefused(CsrReason.KEY, "the RSA key's public exponent is invalid; use 65537")
        return key
    if isinstance(key, ec.EllipticCurvePublicKey):
        if not isinstance(key.curve, _CURVES):
            raise CsrRefused(CsrReason.KEY, f"the key's curve {key.curve.name} is not supported; use P-256 or P-384")
        return key
    if isinstance(key, ed25519.Ed25519PublicKey):
        return key
    raise CsrRefused(CsrReason.KEY, "this kind of key is not supported; use P-256, P-384, RSA or Ed25519")


def _check_signature(csr: x509.CertificateSigningRequest) -> None:
    try:
        hashed_by = csr.signature_hash_algorithm
        good = csr.is_signature_valid
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise CsrRefused(CsrReason.SIGNATURE, "the CSR's signature algorithm is unknown") from error
    if hashed_by is not None and not isinstance(hashed_by, _HASHES):
        raise CsrRefused(CsrReason.SIGNATURE, f"the CSR's signature uses {hashed_by.name}, which is too weak")
    if not good:
        raise CsrRefused(CsrReason.SIGNATURE, "the CSR is not signed with the key that it contains")
