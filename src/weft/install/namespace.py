"""The installation's namespace, and its two ConfigMaps: the mesh config and the injector's settings."""

from __future__ import annotations

from typing import Any

import yaml

from weft.install.injector import injector_data
from weft.install.names import OWNED_BY, InstallationNames
from weft.install.values import Values


def namespace(values: Values) -> dict[str, Any]:
    """Return the Namespace, which all revisions share. Its pod security is `privileged`, because the node agent needs
    hostPath volumes; the control plane's pod complies with `restricted`."""
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": values.namespace,
            "labels": {**OWNED_BY, "pod-security.kubernetes.io/enforce": "privileged"},
        },
    }


def config_maps(values: Values) -> list[dict[str, Any]]:
    names = InstallationNames.of(values)
    mesh = yaml.safe_dump({"rootNamespace": values.namespace, **values.mesh}, sort_keys=True)
    return [
        _config_map(names, names.mesh_config, {"mesh": mesh}),
        _config_map(names, names.injector, injector_data(values)),
    ]


def _config_map(names: InstallationNames, name: str, data: dict[str, str]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": names.metadata(name), "data": data}
