"""A root created by a test, and certificates that it signs, in memory: for tests that use certificates without the
mesh's own CA."""

from __future__ import annotations

import datetime
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric import rsa as rsa_keys

_PEM = serialization.Encoding.PEM


@dataclass(frozen=True)
class Credentials:
    """What one side of a handshake presents, and the root that it trusts. All in PEM."""

    certificate: bytes
    key: bytes
    root: bytes


class Authority:
    def __init__(self):
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "root")])
        self.root = self._sign(self._name, self._key.public_key(), authority=True)

    def issue(self, name, *, rsa=False, **more):
        """`name` is a URI or a DNS name."""
        key = rsa_keys.generate_private_key(65537, 2048) if rsa else ec.generate_private_key(ec.SECP256R1())
        written = x509.UniformResourceIdentifier(name) if "://" in name else x509.DNSName(name)
        certificate = self._sign(x509.Name([]), key.public_key(), written, **more)
        private = key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        return Credentials(certificate, private, self.root)

    def revoked(self, credentials):
        """A signed CRL with this one certificate."""
        now = datetime.datetime.now(datetime.UTC)
        serial = x509.load_pem_x509_certificate(credentials.certificate).serial_number
        entry = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now).build()
        builder = x509.CertificateRevocationListBuilder(self._name, now, now + datetime.timedelta(hours=1), [], [entry])
        return builder.sign(self._key, hashes.SHA256()).public_bytes(_PEM)

    def _sign(self, subject, key, name=None, *, authority=False, lifetime=datetime.timedelta(hours=1)):
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder(subject_name=subject, issuer_name=self._name, public_key=key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(min(now, now + lifetime) - datetime.timedelta(hours=1))
            .not_valid_after(now + lifetime)
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        )
        if name is not None:
            builder = builder.add_extension(x509.SubjectAlternativeName([name]), critical=True)
        return builder.sign(self._key, hashes.SHA256()).public_bytes(_PEM)
