"""The installation's namespace, and its two ConfigMaps: the mesh config and the injector's settings."""

from __future__ import annotations

from typing import Any

import msgspec
import yaml

from weft.install.names import OWNED_BY, InstallationNames
from weft.install.values import Values
from weft.model.settings import Settings


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
    settings = msgspec.json.format(msgspec.json.encode(injector_settings(values), order="sorted"), indent=2).decode()
    return [
        _config_map(names, names.mesh_config, {"mesh": mesh}),
        _config_map(names, names.injector, {"values": f"{settings}\n"}),
    ]


def injector_settings(values: Values) -> dict[str, Any]:
    """Return the injector's settings: `injection.settings` of the values, and the fields that other values
    determine, such as `image`."""
    return {
        **values.injection.settings,
        "image": values.image,
        "imagePullPolicy": values.image_pull_policy,
        "imagePullSecrets": list(values.image_pull_secrets),
        "redirectBy": values.injection.redirect_by,
        "enableNamespacesByDefault": values.injection.by_default,
        "excludedNamespaces": list(values.injection.excluded_namespaces),
        "revision": values.revision,
        "rootNamespace": values.namespace,
        "driver": InstallationNames.of(values).driver,
        "clusterDomain": values.cluster_domain,
        "trustDomain": values.mesh.get("trustDomain", Settings().trust_domain),
    }


def _config_map(names: InstallationNames, name: str, data: dict[str, str]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": names.metadata(name), "data": data}
