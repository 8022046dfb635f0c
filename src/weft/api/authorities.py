"""Reads CA certificates from a ConfigMap, under `ca.crt`; objects of the Gateway API refer to such ConfigMaps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def authorities(body: Mapping[str, Any]) -> str:
    """Return the CA certificates of a ConfigMap as PEM; "" if it has none, or if the value is not PEM. `body`: the
    whole ConfigMap."""
    data = body.get("data")
    roots = data.get("ca.crt") if isinstance(data, Mapping) else None
    if not isinstance(roots, str):
        return ""
    from cryptography.x509 import load_pem_x509_certificates  # slow to import, and few meshes have such a ConfigMap

    try:
        load_pem_x509_certificates(roots.encode())
    except ValueError:
        return ""  # the ConfigMap belongs to another tool and has another format
    return roots
