"""Creates X.509 certificates: roots, workload certificates and the control plane's own. Input: keys and names;
output: PEM.

A workload certificate is an X.509-SVID: exactly one URI name and no other name, an empty subject, never a CA.
"""

from __future__ import annotations

import ipaddress
import secrets
from datetime import UTC, datetime
from typing import Any

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from weft.ca.csr import PublicKey

PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey


class Validity(msgspec.Struct, frozen=True):
    """The period in which a certificate is valid, from `begins` to `ends`, in Unix seconds. Certificates contain whole
    seconds."""

    begins: float
    ends: float


class Signing(msgspec.Struct, frozen=True):
    """A CA's certificate and key. `chain`: the certificates that a verifier needs between a leaf and the root that it
    trusts, in PEM, from the signing CA up, without the root."""

    certificate: x509.Certificate
    key: PrivateKey
    chain: tuple[str, ...] = ()  # PEM, from the signer up, without the root

    @property
    def ends(self) -> float:
        return self.certificate.not_valid_after_utc.timestamp()


class Issued(msgspec.Struct, frozen=True):
    chain: tuple[str, ...]  # PEM, the leaf first, then intermediates; never the root
    not_before: datetime  # earlier than `issued`, for verifiers with a slow clock
    expires: datetime
    issued: datetime  # by the local clock; shares of the lifetime count from here


def new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def key_pem(key: PrivateKey) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()


def certificate_pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def make_root(trust_domain: str, key: PrivateKey, validity: Validity) -> x509.Certificate:
    """Return a self-signed root certificate. Each root has a unique subject: verifiers find issuers by name, and two
    roots may be trusted at the same time."""
    name = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, trust_domain[:64]),
            x509.NameAttribute(NameOID.COMMON_NAME, f"weft root {secrets.token_hex(4)}"),
        ]
    )
    return (
        _builder(name, key.public_key(), validity)
        .issuer_name(name)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(key_cert_sign=True, crl_sign=True), critical=True)
        .sign(key, _hash(key))
    )


def make_leaf(signing: Signing, public_key: PublicKey, uri: str, validity: Validity) -> x509.Certificate:
    return _sign_leaf(
        signing,
        public_key,
        [x509.UniformResourceIdentifier(uri)],
        [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH],
        validity,
    )


def make_server(
    signing: Signing, public_key: PublicKey, names: tuple[str, ...], validity: Validity
) -> x509.Certificate:
    """Return a certificate for a TLS server with the DNS names or addresses in `names`. It does not contain a workload
    identity. `signing`: the CA that signs. `public_key`: the server's key."""
    return _sign_leaf(
        signing, public_key, [_general_name(name) for name in names], [ExtendedKeyUsageOID.SERVER_AUTH], validity
    )


def _sign_leaf(
    signing: Signing,
    public_key: PublicKey,
    names: list[x509.GeneralName],
    purposes: list[x509.ObjectIdentifier],
    validity: Validity,
) -> x509.Certificate:
    is_rsa = isinstance(public_key, rsa.RSAPublicKey)
    return (
        _builder(x509.Name([]), public_key, validity)
        .issuer_name(signing.certificate.subject)
        # Critical, because the subject is empty (RFC 5280, 4.2.1.6).
        .add_extension(x509.SubjectAlternativeName(names), critical=True)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(digital_signature=True, key_encipherment=is_rsa), critical=True)
        .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        .add_extension(_authority_key_id(signing.certificate), critical=False)
        .sign(signing.key, _hash(signing.key))
    )


def _builder(subject: x509.Name, public_key: PublicKey, validity: Validity) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .public_key(public_key)
        .serial_number(secrets.randbits(158) | 1 << 158)  # 158 random bits; the limit is 20 octets
        .not_valid_before(datetime.fromtimestamp(int(validity.begins), UTC))
        .not_valid_after(datetime.fromtimestamp(int(validity.ends), UTC))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
    )


def _authority_key_id(issuer: x509.Certificate) -> x509.AuthorityKeyIdentifier:
    try:
        key_id = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    except x509.ExtensionNotFound:
        key: Any = issuer.public_key()
        return x509.AuthorityKeyIdentifier.from_issuer_public_key(key)
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(key_id)


def _usage(
    *,
    digital_signature: bool = False,
    key_encipherment: bool = False,
    key_cert_sign: bool = False,
    crl_sign: bool = False,
) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=digital_signature,
        content_commitment=False,
        key_encipherment=key_encipherment,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=key_cert_sign,
        crl_sign=crl_sign,
        encipher_only=False,
        decipher_only=False,
    )


def _hash(key: PrivateKey) -> hashes.SHA256 | hashes.SHA384 | None:
    if isinstance(key, ed25519.Ed25519PrivateKey):
        return None
    if isinstance(key, ec.EllipticCurvePrivateKey) and key.curve.key_size > 256:
        return hashes.SHA384()
    return hashes.SHA256()


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
