"""Certificates for what is measured beside the mesh: a root of its own and a P-256 leaf per name, as files.

Made without the mesh's CA, so that the bare pair is a baseline that owes the mesh nothing.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

_DAY = timedelta(days=1)


class Credentials(msgspec.Struct, frozen=True):
    """What one side of a handshake shows, and what it trusts. Files in PEM."""

    chain: Path
    key: Path
    roots: Path


def make_credentials(directory: Path, *names: str) -> tuple[Credentials, ...]:
    """One for each name, all under one new root."""
    root_key = ec.generate_private_key(ec.SECP256R1())
    root = _sign("root", root_key, None, root_key, x509.BasicConstraints(ca=True, path_length=None))
    roots = directory / "roots.pem"
    roots.write_bytes(root.public_bytes(Encoding.PEM))
    made = []
    for name in names:
        key = ec.generate_private_key(ec.SECP256R1())
        leaf = _sign(name, key, root, root_key, x509.BasicConstraints(ca=False, path_length=None))
        made.append(Credentials(directory / f"{name}-chain.pem", directory / f"{name}-key.pem", roots))
        made[-1].chain.write_bytes(leaf.public_bytes(Encoding.PEM))
        save_key(made[-1].key, key)
    return tuple(made)


def save_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    path.touch(mode=0o600)
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))


def _sign(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    issuer: x509.Certificate | None,
    issuer_key: ec.EllipticCurvePrivateKey,
    constraints: x509.BasicConstraints,
) -> x509.Certificate:
    now = datetime.now(UTC)
    subject = x509.Name([x509.NameAttribute(NameOID.ORGANIZATION_NAME, name)])
    uri = x509.UniformResourceIdentifier(f"spiffe://bench.local/ns/bench/sa/{name}")
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _DAY)
        .not_valid_after(now + _DAY)
        .add_extension(constraints, critical=True)
        .add_extension(x509.SubjectAlternativeName([uri]), critical=True)
        .sign(issuer_key, hashes.SHA256())
    )
