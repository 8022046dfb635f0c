"""Loads a CA that the operator supplies (plugs in) as files with Istio's names.

Input: a directory with these files. Output: the signing CA and the roots to trust.

    ca-cert.pem      the signing CA: a root, or an intermediate
    ca-key.pem       its key, readable by its owner only
    root-cert.pem    every root to trust; needed unless ca-cert.pem is itself the root
    cert-chain.pem   the chain from ca-cert.pem up to the root; needed if there is more than one step

Rule: the files must be valid together; otherwise AuthorityError names the file and the reason.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from weft.ca.certificates import PrivateKey, Signing, certificate_pem
from weft.ca.error import AuthorityError
from weft.ca.store import read_secret

log = logging.getLogger("weft.ca")

CERTIFICATE, KEY, ROOTS, CHAIN = "ca-cert.pem", "ca-key.pem", "root-cert.pem", "cert-chain.pem"
FILES = (CERTIFICATE, KEY, ROOTS, CHAIN)
ExtensionT = TypeVar("ExtensionT", bound=x509.ExtensionType)
_MOST_BYTES = 1 << 20
_LONGEST_CHAIN = 8
_MOST_ROOTS = 32


class Plugged(msgspec.Struct, frozen=True):
    signing: Signing
    roots: tuple[str, ...]  # PEM; the root of the signing CA is the first


class PluggedIn:
    """A plugged-in CA that watches its files. If the files change and are valid together, they are used at once. If
    the changed files are invalid, that is logged, and the old ones stay in use."""

    due_at = None

    def __init__(self, directory: Path, now: float) -> None:
        """Load the files in `directory`. Raises AuthorityError."""
        self._directory = directory
        self._seen = stamp(directory)
        self._plugged = read_plugged(directory, now)
        self.problem = ""

    @property
    def signing(self) -> Signing:
        return self._plugged.signing

    def bundle(self) -> tuple[str, ...]:
        return self._plugged.roots

    def note(self, expires: float, lifetime: float) -> None:
        """Do nothing: the operator decides when a root may be dropped, so issued certificates need not be recorded."""

    def tick(self, now: float) -> bool:
        seen = stamp(self._directory)
        if seen == self._seen:
            return False
        self._seen = seen
        try:
            plugged = read_plugged(self._directory, now)
        except AuthorityError as error:
            self.problem = str(error)
            log.error("the changed CA files are invalid; the old ones stay in use: %s", error)
            return False
        before, self._plugged, self.problem = self._plugged, plugged, ""
        removed = set(before.roots) - set(plugged.roots)
        if before.roots[0] in removed:
            log.warning(
                "the root that signed until now is no longer in %s: proxies no longer trust its certificates", ROOTS
            )
        log.info("the CA's files have changed and are used from now on")
        return before != plugged

    def rotate(self, now: float, propagation: float) -> None:
        """A plugged-in CA cannot be rotated here: always raise AuthorityError, with a hint how the operator rotates a
        plugged-in CA."""
        raise AuthorityError(
            "this CA is plugged in: weft does not rotate its roots",
            f"put the old and the new root into {ROOTS}; "
            f"when all proxies have both, replace {CERTIFICATE}, {KEY}, {CHAIN}\n"
            f"when the last old certificate has expired, remove the old root from {ROOTS}; no restart is needed",
            file=self._directory,
        )

    def switch(self, now: float) -> None:
        self.rotate(now, 0.0)

    def close(self, now: float) -> None:
        """Do nothing: there is no resource to release."""


def is_plugged_in(directory: Path) -> bool:
    return (directory / CERTIFICATE).exists() or (directory / KEY).exists()


def stamp(directory: Path) -> tuple[tuple[int, int, int] | None, ...]:
    """Return a value that changes when one of the CA files in `directory` is replaced or written. Symbolic links are
    followed, because Kubernetes mounts Secrets with them."""
    return tuple(_stamp(directory / name) for name in FILES)


def read_plugged(directory: Path, now: float) -> Plugged:
    """Load the CA files in `directory` and check that they are valid together at the time `now`. Raises
    AuthorityError."""
    own = directory / CERTIFICATE
    certificates = _certificates(own)
    if not certificates:
        raise AuthorityError("the file does not exist", f"a plugged-in CA needs {CERTIFICATE} and {KEY}", file=own)
    signer, key = certificates[0], _key(directory / KEY)
    if signer.public_key() != key.public_key():
        raise AuthorityError(
            f"the key is not the key of {CERTIFICATE}",
            "use a certificate and a key that belong together",
            file=directory / KEY,
        )
    given = _certificates(directory / ROOTS) or ([signer] if _is_self_signed(signer) else [])
    if not given:
        raise AuthorityError(
            "the file does not exist",
            f"{CERTIFICATE} is an intermediate: put its root into this file",
            file=directory / ROOTS,
        )
    roots = list({certificate_pem(root): root for root in given}.values())[:_MOST_ROOTS]
    chain, root = _climb(signer, [*certificates[1:], *_certificates(directory / CHAIN)], roots, directory)
    for steps, certificate in enumerate(chain):
        file = own if certificate is signer else directory / CHAIN
        _check_authority(certificate, file, now, below=steps)
    _check_authority(root, directory / ROOTS, now, below=max(0, len(chain) - (chain[-1] == root)))
    ordered = [root, *(each for each in roots if each != root)]
    intermediates = tuple(certificate_pem(each) for each in chain if each != root)
    return Plugged(Signing(signer, key, intermediates), tuple(certificate_pem(each) for each in ordered))


def _climb(
    signer: x509.Certificate, offered: list[x509.Certificate], roots: list[x509.Certificate], directory: Path
) -> tuple[list[x509.Certificate], x509.Certificate]:
    """Return (chain, root): the certificates from the signing CA (`signer`) up to a root in `roots`, and that root.
    `offered`: the certificates from which the chain is built, in any order: each one in the chain was signed by the
    next one. `directory`: that of the files, for error messages."""
    chain = [signer]
    while len(chain) <= _LONGEST_CHAIN:
        top = chain[-1]
        for root in roots:
            if root == top or _issued(top, root):
                return chain, root
        above = next((each for each in offered if each not in chain and _issued(top, each)), None)
        if above is None:
            break
        chain.append(above)
    shown = chain[-1].subject.rfc4514_string() or "a certificate without a name"
    raise AuthorityError(
        f"no certificate in this file or in {ROOTS} has signed {shown!a}",
        f"put every certificate between {CERTIFICATE} and the root into {CHAIN}, the root into {ROOTS}",
        file=directory / CHAIN,
    )


def _check_authority(certificate: x509.Certificate, file: Path, now: float, *, below: int) -> None:
    """Raise AuthorityError if `certificate` is expired, not yet valid, or may not sign. `below`: the number of CA
    certificates between `certificate` and a workload's. `file`: the certificate's file, for error messages."""
    shown = certificate.subject.rfc4514_string() or "a certificate without a name"
    at = datetime.fromtimestamp(now, UTC)
    if at >= certificate.not_valid_after_utc:
        raise AuthorityError(
            f"{shown!a} expired on {certificate.not_valid_after_utc:%Y-%m-%d %H:%M} UTC",
            "replace the certificate",
            file=file,
        )
    if at < certificate.not_valid_before_utc:
        raise AuthorityError(
            f"{shown!a} is valid only from {certificate.not_valid_before_utc:%Y-%m-%d %H:%M} UTC",
            "check this machine's clock",
            file=file,
        )
    try:
        constraints = _extension(certificate, x509.BasicConstraints)
        usage = _extension(certificate, x509.KeyUsage)
    except ValueError as error:
        raise AuthorityError(f"{shown!a} has invalid extensions", "create the certificate again", file=file) from error
    if constraints is None or not constraints.ca:
        reason = "it has no basic constraints" if constraints is None else "its basic constraints have CA:FALSE"
        raise AuthorityError(
            f"{shown!a} is not a CA: {reason}",
            "create the certificate again, with openssl: -addext basicConstraints=critical,CA:TRUE",
            file=file,
        )
    # A certificate without a key usage extension may be used for everything (RFC 5280, 4.2.1.3).
    if usage is not None and not usage.key_cert_sign:
        raise AuthorityError(
            f"{shown!a} may not sign certificates: its key usage lacks keyCertSign",
            "create the certificate again, with openssl: -addext keyUsage=critical,keyCertSign,cRLSign",
            file=file,
        )
    if constraints.path_length is not None and constraints.path_length < below:
        raise AuthorityError(
            f"{shown!a} allows {constraints.path_length} CAs below it, but there are {below}",
            "shorten the chain",
            file=file,
        )


def _extension(certificate: x509.Certificate, kind: type[ExtensionT]) -> ExtensionT | None:
    try:
        return certificate.extensions.get_extension_for_class(kind).value
    except x509.ExtensionNotFound:
        return None


def _issued(certificate: x509.Certificate, by: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(by)
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
        return False
    return True


def _is_self_signed(certificate: x509.Certificate) -> bool:
    return _issued(certificate, certificate)


def _certificates(path: Path) -> list[x509.Certificate]:
    try:
        with path.open("rb") as file:
            text = file.read(_MOST_BYTES)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise AuthorityError(f"the file cannot be read: {error.strerror}", f"try: ls -l {path}", file=path) from error
    try:
        return x509.load_pem_x509_certificates(text)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise AuthorityError(
            "the file contains no certificates in PEM",
            "a certificate begins with -----BEGIN CERTIFICATE-----",
            file=path,
        ) from error


def _key(path: Path) -> PrivateKey:
    text = read_secret(path)
    if text is None:
        raise AuthorityError("the file does not exist", f"a plugged-in CA needs {CERTIFICATE} and {KEY}", file=path)
    try:
        key = serialization.load_pem_private_key(text, password=None)
    except TypeError as error:
        raise AuthorityError(
            "the key is encrypted", f"decrypt it: openssl pkey -in {path} -out {KEY}", file=path
        ) from error
    except (ValueError, UnsupportedAlgorithm) as error:
        raise AuthorityError(
            "the file contains no private key in PEM", "a key begins with -----BEGIN PRIVATE KEY-----", file=path
        ) from error
    if isinstance(key, rsa.RSAPrivateKey) and key.key_size >= 2048:
        return key
    if isinstance(key, ec.EllipticCurvePrivateKey) and isinstance(key.curve, ec.SECP256R1 | ec.SECP384R1):
        return key
    if isinstance(key, ed25519.Ed25519PrivateKey):
        return key
    raise AuthorityError(
        "the key is too weak, or of a kind that is not supported",
        "use P-256, P-384, Ed25519, or RSA of 2048 bits or more",
        file=path,
    )


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        facts = path.stat()
    except OSError:
        return None
    return facts.st_mtime_ns, facts.st_size, facts.st_ino
