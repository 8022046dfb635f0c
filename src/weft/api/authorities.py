"""Whom a ConfigMap says to believe: the certificates in its `ca.crt`, as the Gateway API keeps them there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def authorities(body: Mapping[str, Any]) -> str:
    """Its certificates, as PEM; nothing if there are none, or if something else stands there."""
    data = body.get("data")
    roots = data.get("ca.crt") if isinstance(data, Mapping) else None
    if not isinstance(roots, str):
        return ""
    from cryptography.x509 import load_pem_x509_certificates  # not for those who have no such ConfigMap

    try:
        load_pem_x509_certificates(roots.encode())
    except ValueError:
        return ""  # somebody else's, of another shape
    return roots
