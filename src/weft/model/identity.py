"""The SPIFFE identity of a workload: `spiffe://TRUST_DOMAIN/ns/NAMESPACE/sa/SERVICE_ACCOUNT`. Certificates carry it,
proxies verify it, policies name it."""

from __future__ import annotations

import re

import msgspec

_LABEL = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_TRUST_DOMAIN = r"[a-z0-9](?:[-._a-z0-9]*[a-z0-9])?"
_SPIFFE = re.compile(rf"spiffe://({_TRUST_DOMAIN})/ns/({_LABEL})/sa/({_LABEL}(?:\.{_LABEL})*)")
_LONGEST = 2048  # bytes, SPIFFE's own limit


class Identity(msgspec.Struct, frozen=True, order=True):
    trust_domain: str
    namespace: str
    service_account: str

    def __str__(self) -> str:
        return f"spiffe://{self.trust_domain}/ns/{self.namespace}/sa/{self.service_account}"


def is_trust_domain(text: str) -> bool:
    return len(text) <= 255 and re.fullmatch(_TRUST_DOMAIN, text) is not None


def parse_identity(text: str) -> Identity:
    """Parse a SPIFFE identity. Raises ValueError unless the text has exactly the form that weft issues."""
    match = _SPIFFE.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None:
        raise ValueError(f"{text[:200]!r} is not spiffe://TRUST_DOMAIN/ns/NAMESPACE/sa/SERVICE_ACCOUNT")
    return Identity(*match.groups())
