"""Writes small container images as OCI archives with tarfile, without a registry and without Docker."""

from __future__ import annotations

import hashlib
import io
import json
import platform
import tarfile
from pathlib import Path
from typing import Any

LAYOUT = "application/vnd.oci.image"


def write(
    target: Path,
    name: str,
    *,
    files: dict[str, Path] | None = None,
    links: dict[str, str] | None = None,
    config: dict[str, Any] | None = None,
) -> Path:
    """Write an image called `name` (registry/path:tag) with one layer of executable `files` and symbolic `links`.
    Return `target`."""
    layer = _layer(files or {}, links or {})
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    settings = {
        "architecture": machine,
        "os": "linux",
        "config": config or {},
        "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
        "history": [{"created_by": "weft tools/kube"}],
    }
    body = json.dumps(settings).encode()
    manifest = json.dumps(
        {
            "schemaVersion": 2,
            "mediaType": f"{LAYOUT}.manifest.v1+json",
            "config": _descriptor("config.v1+json", body),
            "layers": [_descriptor("layer.v1.tar", layer)],
        }
    ).encode()
    named = {
        **_descriptor("manifest.v1+json", manifest),
        "annotations": {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name.rpartition(":")[2]},
    }
    index = json.dumps({"schemaVersion": 2, "manifests": [named]}).encode()
    with tarfile.open(target, "w") as archive:
        _add(archive, "oci-layout", b'{"imageLayoutVersion":"1.0.0"}')
        _add(archive, "index.json", index)
        for blob in (manifest, body, layer):
            _add(archive, f"blobs/sha256/{_digest(blob).removeprefix('sha256:')}", blob)
    return target


def _layer(files: dict[str, Path], links: dict[str, str]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for directory in ("etc", "tmp", "usr", "var"):
            entry = tarfile.TarInfo(directory)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if directory == "tmp" else 0o755
            archive.addfile(entry)
        for path, source in files.items():
            _add(archive, path.lstrip("/"), source.read_bytes(), mode=0o755)
        for path, goal in links.items():
            entry = tarfile.TarInfo(path.lstrip("/"))
            entry.type, entry.linkname = tarfile.SYMTYPE, goal
            archive.addfile(entry)
    return buffer.getvalue()


def _add(archive: tarfile.TarFile, path: str, content: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(path)
    entry.size, entry.mode = len(content), mode
    archive.addfile(entry, io.BytesIO(content))


def _descriptor(kind: str, content: bytes) -> dict[str, Any]:
    return {"mediaType": f"{LAYOUT}.{kind}", "digest": _digest(content), "size": len(content)}


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"
