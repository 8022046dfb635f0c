"""Creates the certificates for the rigs: a root, and a P-256 leaf certificate per account, as PEM files.

The bare Envoys use only these certificates, so that the baseline does not depend on weft's CA. A mesh that gets the
same root as its CA also accepts them, so a client outside the mesh can do TLS handshakes with the mesh's sidecars.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_DAY = timedelta(days=1)


class Credentials(msgspec.Struct, frozen=True):
    """The PEM files of one side of a handshake: its certificate chain, its key, and the roots that it trusts."""

    chain: Path
    key: Path
    roots: Path


class Root:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        subject = _name("root")
        self._certificate = (
            _certificate(subject, subject, self._key, 10 * _DAY)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        self._file = directory / "roots.pem"
        self._file.write_bytes(self._certificate.public_bytes(Encoding.PEM))

    def credentials(self, account: str) -> Credentials:
        """Create a certificate and key for the service account in namespace `bench`, in the default trust domain
        `cluster.local`."""
        key = ec.generate_private_key(ec.SECP256R1())
        uri = x509.UniformResourceIdentifier(f"spiffe://cluster.local/ns/bench/sa/{account}")
        purposes = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        leaf = (
            _certificate(_name(account), self._certificate.subject, key, _DAY)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
            .add_extension(x509.SubjectAlternativeName([uri]), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        files = Credentials(self._directory / f"{account}.pem", self._directory / f"{account}-key.pem", self._file)
        files.chain.write_bytes(leaf.public_bytes(Encoding.PEM))
        _save_key(files.key, key)
        return files

    def save_as_ca(self, directory: Path) -> Path:
        """Write this root as a CA into a new directory, with the file names that Istio uses for plugged-in CA
        certificates."""
        directory.mkdir(mode=0o700)
        for name in ("ca-cert.pem", "root-cert.pem", "cert-chain.pem"):
            (directory / name).write_bytes(self._certificate.public_bytes(Encoding.PEM))
        _save_key(directory / "ca-key.pem", self._key)
        return directory


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, life: timedelta
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _DAY)
        .not_valid_after(now + life)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _name(organization: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization)])


def _save_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    path.touch(mode=0o600)
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
