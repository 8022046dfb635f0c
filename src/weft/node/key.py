"""The private key of a workload, generated in memory for one certificate. Its PEM is used in two places: the SDS secret
that is sent to Envoy, and the in-memory state for the next agent (`keepsakes.py`).

Rule: printing, logging, pickling or comparing a key reveals nothing but its kind.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NoReturn

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from weft.model.identity import Identity


class KeyKind(StrEnum):
    """The algorithm and size of a key. Envoy accepts no Ed25519 certificate from another Envoy, so Ed25519 is only for
    workloads whose peers are other programs."""

    P256 = "P-256"
    P384 = "P-384"
    RSA2048 = "RSA-2048"
    RSA4096 = "RSA-4096"
    ED25519 = "Ed25519"


class Key:
    __slots__ = ("_key", "kind")

    def __init__(self, kind: KeyKind = KeyKind.P256) -> None:
        self.kind = kind
        self._key = _make(kind)

    @classmethod
    def from_secret_pem(cls, pem: bytes, kind: KeyKind = KeyKind.P256) -> Key:
        """Return a key that the previous agent generated. Raises ValueError if `pem` is not such a key."""
        try:
            key = serialization.load_pem_private_key(pem, password=None)
        except (TypeError, UnsupportedAlgorithm) as error:
            raise ValueError("the private key is encrypted, or has an unsupported algorithm") from error
        if not isinstance(key, (rsa.RSAPrivateKey, ec.EllipticCurvePrivateKey, ed25519.Ed25519PrivateKey)):
            raise ValueError("the private key is not an RSA, EC or Ed25519 key")
        wrapped = cls.__new__(cls)
        wrapped.kind, wrapped._key = kind, key
        return wrapped

    def request(self, identity: Identity) -> bytes:
        """Return a certificate signing request in PEM. The CA takes the identity from the token; the SAN in the request
        is only for people who read it."""
        names = x509.SubjectAlternativeName([x509.UniformResourceIdentifier(str(identity))])
        builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
        hashed_by = None if self.kind is KeyKind.ED25519 else hashes.SHA256()
        request = builder.add_extension(names, critical=True).sign(self._key, hashed_by)
        return request.public_bytes(serialization.Encoding.PEM)

    def is_for(self, certificate: x509.Certificate) -> bool:
        """Return whether the certificate contains this key's public key."""
        return certificate.public_key() == self._key.public_key()

    def secret_pem(self) -> bytes:
        return self._key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )

    def __repr__(self) -> str:
        return f"<private key, {self.kind}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a private key cannot be copied or pickled")


def _make(kind: KeyKind) -> rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey:
    if kind is KeyKind.ED25519:
        return ed25519.Ed25519PrivateKey.generate()
    if kind in (KeyKind.RSA2048, KeyKind.RSA4096):
        return rsa.generate_private_key(public_exponent=65_537, key_size=int(kind.removeprefix("RSA-")))
    return ec.generate_private_key(ec.SECP256R1() if kind is KeyKind.P256 else ec.SECP384R1())
