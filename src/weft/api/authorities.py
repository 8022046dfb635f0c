"""CA certificates in a ConfigMap, under `ca.crt`, which the Gateway API refers to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def authorities(body: Mapping[str, Any]) -> str:
    """Its certificates, as PEM; "" if there are none, or if the value is not PEM."""
    data = body.get("data")
    roots = data.get("ca.crt") if isinstance(data, Mapping) else None
    if not isinstance(roots, str):
        return ""
    from cryptography.x509 import load_pem_x509_certificates  # slow to import, and few meshes have such a ConfigMap

    try:
        load_pem_x509_certificates(roots.encode())
    except ValueError:
        return ""  # another tool's ConfigMap, in another format
    return roots
