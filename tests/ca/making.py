"""Keys, CSRs, CAs and handshakes for the tests of the CA."""

from __future__ import annotations

import ssl
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.x509.oid import NameOID
from cryptography.x509.verification import PolicyBuilder, Store

from weft.ca.certificates import certificate_pem, key_pem
from weft.ca.tokens import Caller
from weft.model.identity import Identity

PEM = serialization.Encoding.PEM
DOMAIN = "cluster.local"
WEB = Identity(DOMAIN, "shop", "web")
CALLER = Caller("shop", "web", "web-7d9f", "5f0c9d0e-uid")


class Clock:
    """A clock that the test advances. It starts at the real time, because TLS verifiers use the real time."""

    def __init__(self) -> None:
        self.now = datetime.now(UTC).timestamp()

    def __call__(self) -> float:
        return self.now

    def advance(self, **duration: float) -> None:
        self.now += timedelta(**duration).total_seconds()


def p256():
    return ec.generate_private_key(ec.SECP256R1())


def csr(key=None, *, name=None, names=(), algorithm="auto", encoding=PEM) -> bytes:
    key = key or p256()
    if algorithm == "auto":
        algorithm = None if isinstance(key, ed25519.Ed25519PrivateKey) else hashes.SHA256()
    subject = [x509.NameAttribute(NameOID.COMMON_NAME, name)] if name else []
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name(subject))
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(list(names)), critical=False)
    return builder.sign(key, algorithm).public_bytes(encoding)


def load(pem: str) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pem.encode())


def verifies(chain, roots, *, at=None) -> bool:
    """Whether a strict verifier that trusts the roots accepts the chain as a client's."""
    verifier = (
        PolicyBuilder()
        .store(Store([load(root) for root in roots]))
        .time((at or datetime.now(UTC)).replace(tzinfo=None))
        .build_client_verifier()
    )
    leaf, *above = map(load, chain)
    try:
        verifier.verify(leaf, above)
    except x509.verification.VerificationError:
        return False
    return True


def handshake(server, client) -> str:
    """Do a mutual TLS handshake in memory between two (key, chain, roots), and return the URI name of the client's
    certificate that the server got."""
    ours, theirs = _context(ssl.PROTOCOL_TLS_SERVER, *server), _context(ssl.PROTOCOL_TLS_CLIENT, *client)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    one = ours.wrap_bio(to_server, to_client, server_side=True)
    other = theirs.wrap_bio(to_client, to_server)
    waiting = [other, one]
    for _ in range(10):
        waiting = [side for side in waiting if not _done(side)]
    assert not waiting
    return dict(one.getpeercert()["subjectAltName"])["URI"]


def _done(side) -> bool:
    try:
        side.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True


def _context(protocol, key, chain, roots) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    context.load_verify_locations(cadata="".join(roots))
    with tempfile.NamedTemporaryFile() as file:
        file.write(key_pem(key).encode() + "".join(chain).encode())
        file.flush()
        context.load_cert_chain(file.name)
    return context


def ca(name, key, *, by=None, by_key=None, begins=-1, ends=365, is_ca=True, path_length=None, signs=True):
    """Return a CA certificate, self-signed without `by`. `begins` and `ends` are days from now. If `is_ca` or
    `signs` is None, the certificate does not have that extension."""
    now = datetime.now(UTC)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(by.subject if by else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + timedelta(days=begins))
        .not_valid_after(now + timedelta(days=ends))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(by.public_key() if by else key.public_key()),
            critical=False,
        )
    )
    if is_ca is not None:
        constraints = x509.BasicConstraints(ca=is_ca, path_length=path_length if is_ca else None)
        builder = builder.add_extension(constraints, critical=True)
    if signs is not None:
        usage = x509.KeyUsage(
            digital_signature=False,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            key_cert_sign=signs,
            crl_sign=False,
            encipher_only=False,
            decipher_only=False,
        )
        builder = builder.add_extension(usage, critical=True)
    return builder.sign(
        by_key or key, None if isinstance(by_key or key, ed25519.Ed25519PrivateKey) else hashes.SHA256()
    )


def plug_in(directory: Path, *, certificate=None, key=None, roots=(), chain=()) -> None:
    """Write a CA's files as an operator would: one after the other."""
    directory.mkdir(exist_ok=True, mode=0o700)
    if key is not None:
        path = directory / "ca-key.pem"
        path.touch(mode=0o600)
        path.chmod(0o600)
        path.write_text(key_pem(key))
    if certificate is not None:
        (directory / "ca-cert.pem").write_text(certificate_pem(certificate))
    if roots:
        (directory / "root-cert.pem").write_text("".join(map(certificate_pem, roots)))
    if chain:
        (directory / "cert-chain.pem").write_text("".join(map(certificate_pem, chain)))
