"""Writes layers as one image: an OCI layout in a tar, which `ctr images import` and image builders can read.

The tar also has a manifest.json, the list of the same blobs that `docker load` of older Docker versions reads.
"""

from __future__ import annotations

import hashlib
import json
import tarfile
from pathlib import Path
from typing import Any

from tools.image.layer import Layer, add, add_file, extract

USER = "1337:1337"
ENTRYPOINT = ("weft",)
ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/sbin:/usr/bin", "LANG": "C.UTF-8"}
_CREATED = "2020-02-02T00:00:00Z"  # the same time as layer.TIME
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIGURATION = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"


def write(output: Path, layers: list[Layer], *, name: str, version: str) -> str:
    """Write the image to `output` and return its digest. `name` is the full image name, such as
    docker.io/library/weft:1.0."""
    configuration = _json(
        {
            "architecture": "amd64",
            "os": "linux",
            "created": _CREATED,
            "config": {
                "User": USER,
                "Env": [f"{variable}={value}" for variable, value in ENVIRONMENT.items()],
                "Entrypoint": list(ENTRYPOINT),
                "WorkingDir": "/",
                "Labels": {
                    "org.opencontainers.image.title": "weft",
                    "org.opencontainers.image.version": version,
                    "org.opencontainers.image.licenses": "Apache-2.0",
                },
            },
            "rootfs": {"type": "layers", "diff_ids": [layer.diff_id for layer in layers]},
            "history": [{"created": _CREATED, "created_by": layer.name} for layer in layers],
        }
    )
    manifest = _json(
        {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": _descriptor(_CONFIGURATION, configuration),
            "layers": [{"mediaType": _LAYER, "digest": layer.digest, "size": layer.size} for layer in layers],
        }
    )
    annotations = {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name.rpartition(":")[2]}
    index = {"schemaVersion": 2, "manifests": [{**_descriptor(_MANIFEST, manifest), "annotations": annotations}]}
    for_docker = {
        "Config": _blob(_digest(configuration)),
        "RepoTags": [name.removeprefix("docker.io/library/")],
        "Layers": [_blob(layer.digest) for layer in layers],
    }
    partial = output.with_name(f"{output.name}.partial")
    output.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(partial, "w", format=tarfile.PAX_FORMAT) as archive:
        add(archive, "oci-layout", _json({"imageLayoutVersion": "1.0.0"}))
        add(archive, "index.json", _json(index))
        add(archive, "manifest.json", _json([for_docker]))
        add(archive, _blob(_digest(manifest)), manifest)
        add(archive, _blob(_digest(configuration)), configuration)
        for layer in layers:
            add_file(archive, _blob(layer.digest), layer.blob)
    partial.replace(output)
    return _digest(manifest)


def unpack(image: Path, directory: Path) -> dict[str, Any]:
    """Extract all layers of the image, lowest first, into an empty directory. Return the image's configuration."""
    with tarfile.open(image) as archive:

        def read(name: str) -> Any:
            content = archive.extractfile(name)
            return json.load(content) if content else None

        (entry,) = read("index.json")["manifests"]
        manifest = read(_blob(entry["digest"]))
        for layer in manifest["layers"]:
            with tarfile.open(fileobj=archive.extractfile(_blob(layer["digest"])), mode="r|gz") as files:
                extract(files, directory)
        configuration: dict[str, Any] = read(_blob(manifest["config"]["digest"]))
        return configuration


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _blob(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


def _descriptor(media_type: str, content: bytes) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": _digest(content), "size": len(content)}
