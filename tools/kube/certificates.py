"""Creates the keys and certificates of a test cluster: a CA that is valid for a day, and certificates that it signs."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFETIME = datetime.timedelta(days=1)


class Authority:
    """A CA that signs certificates for servers and clients. Each certificate and key is written as NAME.crt and
    NAME.key in `directory`, and so are those of the CA."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "weft test cluster")])
        kept = directory / "ca.key"
        if kept.exists():
            key = serialization.load_pem_private_key(kept.read_bytes(), password=None)
            assert isinstance(key, ec.EllipticCurvePrivateKey)
            self._key = key
            return
        directory.mkdir(parents=True, exist_ok=True)
        self._key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(self._name, self._name, self._key.public_key())
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        _write(directory, "ca", self._key, builder.sign(self._key, hashes.SHA256()))

    def client(self, name: str, user: str, groups: tuple[str, ...] = ()) -> Path:
        """Create a client certificate for the API server and return its path."""
        return self._sign(name, user, groups, ())

    def server(self, name: str, hosts: tuple[str, ...], user: str = "", groups: tuple[str, ...] = ()) -> Path:
        """Create a server certificate for these names and addresses and return its path."""
        return self._sign(name, user or name, groups, hosts)

    def _sign(self, name: str, user: str, groups: tuple[str, ...], hosts: tuple[str, ...]) -> Path:
        key = ec.generate_private_key(ec.SECP256R1())
        attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
        subject = x509.Name([*attributes, x509.NameAttribute(NameOID.COMMON_NAME, user)])
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH, *([ExtendedKeyUsageOID.SERVER_AUTH] if hosts else [])]
        builder = _builder(subject, self._name, key.public_key())
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        if hosts:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_host(host) for host in hosts]), critical=False
            )
        return _write(self._directory, name, key, builder.sign(self._key, hashes.SHA256()))


def service_account_key(directory: Path) -> tuple[Path, Path]:
    """Create the key pair for service-account tokens. Return the paths of the private and the public key."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    private, public = directory / "service-account.key", directory / "service-account.pub"
    _write_private(private, key)
    public.write_bytes(
        key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    return private, public


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + LIFETIME)
    )


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _write(directory: Path, name: str, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> Path:
    _write_private(directory / f"{name}.key", key)
    path = directory / f"{name}.crt"
    path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    return path


def _write_private(path: Path, key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> None:
    path.touch(mode=0o600)
    path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
