"""The namespace, and the two ConfigMaps that say how the mesh and its proxies are to be."""

from __future__ import annotations

from typing import Any

import msgspec
import yaml

from weft.install.names import OWNED_BY, Names
from weft.install.values import Values


def namespace(values: Values) -> dict[str, Any]:
    """`privileged` for the agent's sake, which needs directories of its machine; the control plane keeps to
    `restricted` all the same. It belongs to every revision."""
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": values.namespace,
            "labels": {**OWNED_BY, "pod-security.kubernetes.io/enforce": "privileged"},
        },
    }


def config_maps(values: Values) -> list[dict[str, Any]]:
    names = Names.of(values)
    mesh = {"rootNamespace": values.namespace, **values.mesh}
    settings = {"image": values.image, "imagePullPolicy": values.image_pull_policy, **values.injection.settings}
    settings |= {"revision": values.revision, "redirect": values.injection.redirect, "driver": names.driver}
    return [
        _config_map(names, names.mesh_config, {"mesh": yaml.safe_dump(mesh, sort_keys=True)}),
        _config_map(names, names.injector, {"values": msgspec.json.format(_json(settings), indent=2).decode() + "\n"}),
    ]


def _config_map(names: Names, name: str, data: dict[str, str]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": names.metadata(name), "data": data}


def _json(value: Any) -> bytes:
    return msgspec.json.encode(value, order="sorted")
