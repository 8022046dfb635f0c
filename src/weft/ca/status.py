"""What can be told of an authority: its certificates, their lives and fingerprints, how far a rotation is. No secret.

Read from a running authority, or from its directory, without disturbing who signs with it.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from weft.ca.certificates import Signing
from weft.ca.error import AuthorityError
from weft.ca.plugged import is_plugged_in, read_plugged
from weft.ca.rotation import Phase, State
from weft.ca.store import read_state


class CertificateFacts(msgspec.Struct, frozen=True):
    role: str  # root, signing root, next root, fading root, signer, intermediate, leaf
    subject: str
    issuer: str
    names: tuple[str, ...]
    key: str
    serial: str
    not_before: datetime
    expires: datetime
    fingerprint: str  # SHA-256 over the DER, as openssl and browsers show it


class AuthorityStatus(msgspec.Struct, frozen=True):
    trust_domain: str
    kind: str  # self-made, plugged-in
    phase: Phase
    due: datetime | None  # when the next phase begins
    certificates: tuple[CertificateFacts, ...]
    problem: str = ""

    @property
    def next_step(self) -> str:
        """What happens next, in words."""
        at = f"{self.due:%Y-%m-%d %H:%M:%S} UTC" if self.due else ""
        return {
            Phase.STEADY: "one root is trusted, and signs",
            Phase.ANNOUNCED: f"both roots are trusted; the old one signs until {at}",
            Phase.FADING: f"both roots are trusted; the new one signs, the old one is dropped at {at}",
        }[self.phase]


def self_made_status(state: State) -> AuthorityStatus:
    signer, *others = state.bundle()
    other_role = "next root" if state.next else "fading root"
    facts = (certificate_facts(signer, "signing root"), *(certificate_facts(other, other_role) for other in others))
    due = None if state.due_at is None else datetime.fromtimestamp(state.due_at, UTC)
    return AuthorityStatus(state.trust_domain, "self-made", state.phase, due, facts)


def plugged_status(trust_domain: str, signing: Signing, roots: tuple[str, ...], problem: str = "") -> AuthorityStatus:
    chain = tuple(
        certificate_facts(each, "signer" if place == 0 else "intermediate") for place, each in enumerate(signing.chain)
    )
    role = "root" if chain else "signing root"
    facts = (*chain, *(certificate_facts(each, role if place == 0 else "root") for place, each in enumerate(roots)))
    return AuthorityStatus(trust_domain, "plugged-in", Phase.STEADY, None, facts, problem)


def read_status(directory: Path) -> AuthorityStatus:
    """Raises AuthorityError."""
    if is_plugged_in(directory):
        plugged = read_plugged(directory, time.time())
        return plugged_status("", plugged.signing, plugged.roots)
    state = read_state(directory)
    if state is None:
        raise AuthorityError("there is no CA in this directory", "make one with: weft control --ca DIR", file=directory)
    return self_made_status(state)


def refuse_unusable(directory: Path) -> None:
    """Before anything is begun with it; a directory that is empty, or not there, has room for a new root. Raises
    AuthorityError."""
    if directory.exists() and not directory.is_dir():
        raise AuthorityError("is not a directory", "give a directory: --ca DIR", file=directory)
    if is_plugged_in(directory):
        read_plugged(directory, time.time())
    else:
        read_state(directory)


def certificate_facts(pem: str, role: str) -> CertificateFacts:
    """Raises ValueError."""
    certificate = x509.load_pem_x509_certificate(pem.encode())
    return CertificateFacts(
        role=role,
        subject=certificate.subject.rfc4514_string(),
        issuer=certificate.issuer.rfc4514_string(),
        names=_names(certificate),
        key=_kind(certificate.public_key()),
        serial=f"{certificate.serial_number:x}",
        not_before=certificate.not_valid_before_utc,
        expires=certificate.not_valid_after_utc,
        fingerprint=certificate.fingerprint(hashes.SHA256()).hex(":"),
    )


def _names(certificate: x509.Certificate) -> tuple[str, ...]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    return tuple(str(name.value) for name in names)


def _kind(key: Any) -> str:
    if isinstance(key, rsa.RSAPublicKey):
        return f"RSA {key.key_size}"
    if isinstance(key, ec.EllipticCurvePublicKey):
        return {"secp256r1": "P-256", "secp384r1": "P-384"}.get(key.curve.name, key.curve.name)
    return type(key).__name__.removesuffix("PublicKey")
