"""Writes kubeconfig files, with which programs connect to the API server of a test cluster."""

from __future__ import annotations

import base64
from pathlib import Path

import yaml


def write(path: Path, server: str, authority: Path, certificate: Path) -> Path:
    """Write a kubeconfig with embedded certificates and key, so that it does not depend on other files. The key is
    read from the file beside `certificate`."""
    user = {
        "client-certificate-data": _encoded(certificate),
        "client-key-data": _encoded(certificate.with_suffix(".key")),
    }
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": "weft", "cluster": {"server": server, "certificate-authority-data": _encoded(authority)}}
        ],
        "users": [{"name": certificate.stem, "user": user}],
        "contexts": [{"name": "weft", "context": {"cluster": "weft", "user": certificate.stem}}],
        "current-context": "weft",
    }
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(config, sort_keys=False))
    return path


def _encoded(file: Path) -> str:
    return base64.b64encode(file.read_bytes()).decode()
