"""The status of an authority: its certificates, their validity and fingerprints, and the progress of a rotation. It
contains no secrets.

The status is read from a running authority, or from the authority's directory without disturbing the process that
signs.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from weft.base.problem import Problem, Severity, Where
from weft.ca.error import AuthorityError
from weft.ca.plugged import is_plugged_in, read_plugged
from weft.ca.rotation import RotationPhase, State
from weft.ca.store import read_state

SELF_MADE, PLUGGED_IN = "self-made", "plugged-in"
# The notice before a signing certificate expires: a month, or, if its lifetime is short, the last third of it.
_NOTICE = timedelta(days=30)
_NOTICE_SHARE = 1 / 3


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
    pem: str = ""

    @property
    def is_root(self) -> bool:
        return "root" in self.role


class AuthorityStatus(msgspec.Struct, frozen=True):
    trust_domain: str
    kind: str  # self-made, plugged-in
    phase: RotationPhase
    due: datetime | None  # when the next phase begins
    certificates: tuple[CertificateFacts, ...]
    problem: str = ""
    issued: int = 0  # since the signing process started; 0 if read from a directory
    refused: dict[str, int] = {}  # by reason

    @property
    def next_step(self) -> str:
        """A sentence for the user: how many roots are trusted, which of them signs, and when the next phase of a
        rotation begins; or that the signing certificate has expired."""
        signer = self.certificates[0] if self.certificates else None
        if signer is not None and signer.expires <= datetime.now(UTC):
            return "the signing certificate has expired, and the CA cannot sign until the certificate is replaced"
        if signer is not None and not signer.is_root:
            count = sum(each.is_root for each in self.certificates)
            if count > 1:
                return f"{count} roots are trusted, and an intermediate of one of them signs"
            return "one root is trusted, and an intermediate of it signs"
        at = f"{self.due:%Y-%m-%d %H:%M:%S} UTC" if self.due else ""
        return {
            RotationPhase.STEADY: "one root is trusted, and signs",
            RotationPhase.ANNOUNCED: f"both roots are trusted; the old one signs until {at}",
            RotationPhase.FADING: f"both roots are trusted; the new one signs, the old one is dropped at {at}",
        }[self.phase]

    def problems(self, now: datetime) -> tuple[Problem, ...]:
        """Return a problem for each signing certificate that has expired or expires soon, and before them a problem
        if the files of a plugged-in CA have changed and are invalid."""
        if not self.problem:
            return self.ends(now)
        what = f"the changed CA files are invalid; the old ones stay in use: {self.problem}"
        return Problem(Where(object="CA"), what, "correct the files; no restart is needed"), *self.ends(now)

    def ends(self, now: datetime) -> tuple[Problem, ...]:
        """Return a problem for each signing certificate that has expired or expires soon."""
        where, problems = Where(object="CA"), []
        hint = (
            "replace the certificate in the CA's directory"
            if self.kind == PLUGGED_IN
            else "create a new root: weft ca rotate"
        )
        for certificate in self._what_signs():
            shown = f"{certificate.role} {certificate.subject!a}"
            when = f"{certificate.expires:%Y-%m-%d %H:%M:%S} UTC"
            if now >= certificate.expires:
                problems.append(
                    Problem(
                        where, f"{shown} expired at {when}: proxies reject the certificates that it has signed", hint
                    )
                )
            elif certificate.expires - now < min(
                _NOTICE, (certificate.expires - certificate.not_before) * _NOTICE_SHARE
            ):
                what = f"{shown} expires at {when}, and so does every certificate that it signs"
                problems.append(Problem(where, what, hint, Severity.WARNING))
        return tuple(problems)

    def _what_signs(self) -> Iterator[CertificateFacts]:
        """Yield the signing certificate and the certificates above it, up to its root. Other trusted roots are left
        out, because they may expire without harm."""
        for certificate in self.certificates:
            yield certificate
            if certificate.is_root:
                return


def self_made_status(state: State) -> AuthorityStatus:
    signer, *others = state.bundle()
    other_role = "next root" if state.next else "fading root"
    facts = (certificate_facts(signer, "signing root"), *(certificate_facts(other, other_role) for other in others))
    due = None if state.due_at is None else datetime.fromtimestamp(state.due_at, UTC)
    return AuthorityStatus(state.trust_domain, SELF_MADE, state.phase, due, facts)


def plugged_status(
    trust_domain: str, intermediates: Sequence[str], roots: Sequence[str], problem: str = ""
) -> AuthorityStatus:
    """Return the status of a plugged-in CA. `intermediates`: PEM, the signing certificate first; empty if the root
    itself signs. `roots`: PEM, the root of the signing certificate first. `problem`: why changed CA files are not used,
    so that the old ones stay in use; "" if there is no such problem."""
    chain = tuple(
        certificate_facts(each, "signer" if place == 0 else "intermediate") for place, each in enumerate(intermediates)
    )
    role = "root" if chain else "signing root"
    facts = (*chain, *(certificate_facts(each, role if place == 0 else "root") for place, each in enumerate(roots)))
    return AuthorityStatus(trust_domain, PLUGGED_IN, RotationPhase.STEADY, None, facts, problem)


def read_status(directory: Path) -> AuthorityStatus:
    """Return the status of the CA in `directory`. Raises AuthorityError."""
    if is_plugged_in(directory):
        plugged = read_plugged(directory, time.time())
        return plugged_status("", plugged.signing.chain, plugged.roots)
    state = read_state(directory)
    if state is None:
        raise AuthorityError(
            "there is no CA in this directory", "create one with: weft control --ca DIR", file=directory
        )
    return self_made_status(state)


def refuse_unusable(directory: Path) -> None:
    """Raise AuthorityError if `directory` cannot be used for a CA. An empty or missing directory is accepted: a new
    root is created there."""
    if directory.exists() and not directory.is_dir():
        raise AuthorityError("this is not a directory", "pass a directory: --ca DIR", file=directory)
    if is_plugged_in(directory):
        read_plugged(directory, time.time())
    else:
        read_state(directory)


def certificate_facts(pem: str, role: str) -> CertificateFacts:
    """Return the fields of a certificate that `weft ca show` prints. `pem` is the certificate in PEM; `role` is
    copied to the result, for example "root" or "intermediate". Raises ValueError if `pem` is not a certificate in
    PEM."""
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
        pem=pem,
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
