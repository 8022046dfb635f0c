"""Secrets of a dump as table rows: the certificates that a proxy has and their validity. Private keys are never
read."""

from __future__ import annotations

import base64
import binascii
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from weft.envoy.dump import SECRETS, WHY, Dump, DumpTable, Told, at, items, text
from weft.model.proxy import ROOTS

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

COLUMNS = ("RESOURCE NAME", "TYPE", "STATUS", "VALID CERT", "SERIAL NUMBER", "NOT AFTER", "NOT BEFORE", "TRUST DOMAIN")
_PEM = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_LISTS = (("dynamic_warming_secrets", "WARMING"), ("dynamic_active_secrets", "ACTIVE"))


def secrets(dump: Dump) -> dict[str, Any]:
    """Return the secrets section of the dump, unchanged."""
    return dump.section(SECRETS)


def table(
    section: dict[str, Any], *, now: datetime | None = None, named: bool = False, why: Told | None = None
) -> DumpTable:
    """Return the table of the certificates in a dump's secrets `section`: the first certificate of each chain, and
    every trusted root. `now`: the time for which the validity is computed; None for the current time. `named`: names
    begin with `secret/`. `why`: returns the object that created a secret, which becomes the last column; None: no such
    column."""
    now = now or datetime.now(UTC)
    rows: list[tuple[str, ...]] = []
    for listed, state in _LISTS:
        for entry in items(section, listed):
            status = "UNINITIALIZED" if text(entry, "version_info") == "uninitialized" else state
            name = ("secret/" if named else "") + text(entry, "name")
            reason = (why(text(entry, "name"), ""),) if why else ()
            rows += [(name, each[0], status, *each[1:], *reason) for each in _certificates(at(entry, "secret"), now)]
    return DumpTable((*COLUMNS, *(WHY if why else ())), tuple(rows))


def roots(section: dict[str, Any]) -> frozenset[bytes]:
    """Return the root certificates that the proxy trusts, from a dump's secrets `section`, as PEM without
    whitespace."""
    return frozenset(
        b"".join(each.split())
        for entry in items(section, "dynamic_active_secrets")
        if text(entry, "name") == ROOTS
        for each in _trusted(at(entry, "secret", "validation_context"))
    )


def _trusted(validation: Any) -> list[bytes]:
    domains = items(validation, "custom_validator_config", "typed_config", "trust_domains")
    return _pem(validation, "trusted_ca") or [each for domain in domains for each in _pem(domain, "trust_bundle")]


def _certificates(secret: Any, now: datetime) -> list[tuple[str, ...]]:
    chain = _pem(secret, "tls_certificate", "certificate_chain")
    if chain:
        return [_row(chain[0], "", now)]
    validation = at(secret, "validation_context")
    if trusted := _pem(validation, "trusted_ca"):
        return [_row(each, "", now) for each in trusted]
    domains = items(validation, "custom_validator_config", "typed_config", "trust_domains")
    rows = [
        _row(each, text(domain, "name"), now)
        for domain in domains
        for each in _pem(domain, "trust_bundle") or [b""]  # a trust domain without a certificate gets a row too
    ]
    return rows or [_row(b"", "", now)]


def _pem(value: Any, *path: str) -> list[bytes]:
    source = at(value, *path)
    if inline := text(source, "inline_bytes"):
        try:
            return _PEM.findall(base64.b64decode(inline, validate=True))
        except (binascii.Error, ValueError):
            return []
    return _PEM.findall(text(source, "inline_string").encode())


def _row(pem: bytes, trust_domain: str, now: datetime) -> tuple[str, ...]:
    from cryptography.x509 import DuplicateExtension, UnsupportedGeneralNameType, load_pem_x509_certificate

    try:
        return _certificate_row(load_pem_x509_certificate(pem), trust_domain, now)
    except (ValueError, DuplicateExtension, UnsupportedGeneralNameType):
        return ("", "false", "", "", "", trust_domain or "-")


def _certificate_row(certificate: Certificate, trust_domain: str, now: datetime) -> tuple[str, ...]:
    begins, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    return (
        "CA" if _is_authority(certificate) else "Cert Chain",
        "true" if begins < now < ends else "false",
        f"{certificate.serial_number:032x}",
        f"{ends:%Y-%m-%dT%H:%M:%SZ}",
        f"{begins:%Y-%m-%dT%H:%M:%SZ}",
        trust_domain or _trust_domain(certificate) or "-",
    )


def _is_authority(certificate: Certificate) -> bool:
    from cryptography.x509 import BasicConstraints, ExtensionNotFound

    try:
        return certificate.extensions.get_extension_for_class(BasicConstraints).value.ca
    except ExtensionNotFound:
        return False


def _trust_domain(certificate: Certificate) -> str:
    from cryptography.x509 import ExtensionNotFound, SubjectAlternativeName, UniformResourceIdentifier

    try:
        names = certificate.extensions.get_extension_for_class(SubjectAlternativeName).value
    except ExtensionNotFound:
        return ""
    identities = [name for name in names.get_values_for_type(UniformResourceIdentifier) if name.startswith("spiffe://")]
    return identities[0].removeprefix("spiffe://").partition("/")[0] if identities else ""
