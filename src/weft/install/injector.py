"""The data of the ConfigMap `istio-sidecar-injector`, under three keys. `settings`: weft's own settings of the
injector, as JSON; the control plane reads nothing else. `values` and `config`: the same in the format of Istio's
ConfigMap, as JSON and YAML, because istioctl and Kiali read the ConfigMap by its name and fail if the format is another
one.
"""

from __future__ import annotations

from typing import Any

import msgspec
import yaml

from weft.install.names import InstallationNames
from weft.install.values import Values
from weft.model.settings import Settings

# What istioctl prints if a user passes `config` to it: istioctl would execute Istio's templates with its own code.
_NO_TEMPLATE = (
    '{{ fail "weft has no injection templates: leave out --injectConfigFile, so that istioctl calls the webhook, '
    'or run weft kube-inject" }}'
)


def injector_data(values: Values) -> dict[str, str]:
    return {
        "settings": _json(injector_settings(values)),
        "values": _json(_istio_values(values)),
        "config": yaml.safe_dump(_istio_config(values), sort_keys=True, width=10_000),
    }


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
        "trustDomain": _trust_domain(values),
    }


def _istio_values(values: Values) -> dict[str, Any]:
    """Return the fields of the values of Istio's chart that weft has a setting for, with the names of the chart. Where
    the user's settings lack a field, the value is the injector's default."""
    chosen = values.injection.settings
    hub, image, tag = _image(values.image)
    proxy = {
        "image": image,
        "autoInject": _policy(values),
        "clusterDomain": values.cluster_domain,
        "logLevel": chosen.get("logLevel", "warning"),
        "componentLogLevel": chosen.get("componentLogLevel", "misc:error"),
    }
    return {
        "global": {
            "hub": hub,
            "tag": tag,
            "imagePullPolicy": values.image_pull_policy,
            "imagePullSecrets": list(values.image_pull_secrets),
            "istioNamespace": values.namespace,
            "meshID": chosen.get("meshId") or _trust_domain(values),
            "multiCluster": {"clusterName": chosen.get("clusterId", "Kubernetes"), "enabled": False},
            "network": chosen.get("network", ""),
            "proxy": proxy,
            "proxy_init": {"image": image},
        },
        "pilot": {"cni": {"enabled": values.injection.redirect_by == "node"}, "env": {}},
        "revision": "" if InstallationNames.of(values).is_default else values.revision,
        "sidecarInjectorWebhook": {
            "enableNamespacesByDefault": values.injection.by_default,
            "reinvocationPolicy": "IfNeeded",
            "rewriteAppHTTPProbe": chosen.get("rewriteAppProbes", True),
            "defaultTemplates": [],
            "templates": {},
            **_selection(values),
        },
    }


def _istio_config(values: Values) -> dict[str, Any]:
    return {
        "policy": _policy(values),
        "defaultTemplates": ["sidecar"],
        "templates": {"sidecar": _NO_TEMPLATE, "gateway": _NO_TEMPLATE},
        **_selection(values),
    }


def _selection(values: Values) -> dict[str, Any]:
    chosen = values.injection.settings
    return {
        "alwaysInjectSelector": chosen.get("alwaysInjectSelector", []),
        "neverInjectSelector": chosen.get("neverInjectSelector", []),
        "injectedAnnotations": chosen.get("injectedAnnotations", {}),
    }


def _policy(values: Values) -> str:
    return "enabled" if values.injection.settings.get("autoInject", True) else "disabled"


def _image(reference: str) -> tuple[str, str, str]:
    """Return `global.hub`, `global.proxy.image` and `global.tag` for the image. Istio's tools use an image with a slash
    as it is, and join the three parts of any other."""
    if "/" in reference:
        return "", reference, ""
    name, _, tag = reference.rpartition(":")
    return ("docker.io/library", name, tag) if name else ("docker.io/library", reference, "latest")


def _trust_domain(values: Values) -> str:
    return str(values.mesh.get("trustDomain", Settings().trust_domain))


def _json(fields: dict[str, Any]) -> str:
    return msgspec.json.format(msgspec.json.encode(fields, order="sorted"), indent=2).decode() + "\n"
