"""What the control plane may do, and not a verb more. The node agent may do nothing: it has a token for the CA alone.

Everywhere: read what a mesh is made of, write the status of its own kinds, ask whose a token is, keep the root in one
ConfigMap of each namespace, make proxies for Gateways where `gateways.deployments` is on. In its own namespace: the
objects it made, by name. Kubernetes cannot limit `create` by name, so that verb alone is wider. Secrets of gateways and
ConfigMaps of backends' authorities only where `gateways.secretsIn` and `gateways.configMapsIn` say so."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from weft.api.kinds import GATEWAY_API
from weft.install.crds import DEFINITIONS
from weft.install.names import ROOT_SECRET, InstallationNames
from weft.install.values import EVERYWHERE, Values
from weft.model.proxy import ROOT_CONFIG_MAP

_READ = ("get", "list", "watch")
# The standard's kinds, which weft reads and does not install.
_WITH_STATUS = (
    "backendtlspolicies",
    "gatewayclasses",
    "gateways",
    "grpcroutes",
    "httproutes",
    "tcproutes",
    "tlsroutes",
)
_STANDARD = (*_WITH_STATUS, "referencegrants")
_GROUPS = tuple(sorted({definition.group for definition in DEFINITIONS}))


def cluster_rules(values: Values) -> list[dict[str, Any]]:
    names = InstallationNames.of(values)
    kinds = {group: [each.plural for each in DEFINITIONS if each.group == group] for group in _GROUPS}
    return [
        _rule("", ("namespaces", "nodes", "pods", "serviceaccounts", "services"), _READ),
        _rule("discovery.k8s.io", ("endpointslices",), _READ),
        _rule("apiextensions.k8s.io", ("customresourcedefinitions",), _READ),  # which of the kinds are served, and how
        *(_rule(group, plurals, _READ) for group, plurals in kinds.items()),
        *(_rule(group, [f"{plural}/status" for plural in plurals], ("patch",)) for group, plurals in kinds.items()),
        _rule(GATEWAY_API, _STANDARD, _READ),
        _rule(GATEWAY_API, [f"{plural}/status" for plural in _WITH_STATUS], ("update",)),  # its lists have no owners
        *(_making_gateways() if values.gateways.deployments else ()),
        _rule("authentication.k8s.io", ("tokenreviews",), ("create",)),
        *(_rule("", (kind,), _READ) for kind, _, places in _where_asked(values) if EVERYWHERE in places),
        _rule("", ("configmaps",), ("create",)),
        _rule("", ("configmaps",), (*_READ, "patch"), only=(ROOT_CONFIG_MAP,)),
        _rule("admissionregistration.k8s.io", ("mutatingwebhookconfigurations",), (*_READ, "patch"),
              only=(names.injector,)),
        _rule("admissionregistration.k8s.io", ("validatingwebhookconfigurations",), (*_READ, "patch"),
              only=(names.validator,)),
    ]  # fmt: skip


def _making_gateways() -> tuple[dict[str, Any], ...]:
    """Nothing is deleted: Kubernetes removes what a Gateway owns. A Deployment is looked at first, for whose it is."""
    return (
        _rule("apps", ("deployments",), ("get", "create", "patch")),
        _rule("", ("serviceaccounts", "services"), ("create", "patch")),
    )


def namespace_rules(values: Values) -> list[dict[str, Any]]:
    names = InstallationNames.of(values)
    return [
        _rule("", ("secrets",), ("create",)),
        _rule("", ("secrets",), (*_READ, "patch"), only=(ROOT_SECRET,)),
        _rule("", ("configmaps",), _READ, only=(names.mesh_config, names.injector)),
        _rule("", ("configmaps",), (*_READ, "patch"), only=(names.refusals,)),
        _rule("coordination.k8s.io", ("leases",), ("create",)),
        _rule("coordination.k8s.io", ("leases",), ("get", "patch"), only=(names.lease,)),
    ]


def roles(values: Values) -> list[dict[str, Any]]:
    names = InstallationNames.of(values)
    everywhere, here = names.cluster_control, names.control
    return [
        {**_object("ClusterRole", names, everywhere), "rules": cluster_rules(values)},
        {**_object("ClusterRoleBinding", names, everywhere), **_binding("ClusterRole", names, everywhere)},
        {**_object("Role", names, here), "rules": namespace_rules(values)},
        {**_object("RoleBinding", names, here), **_binding("Role", names, here)},
        *_reading(values, names),
    ]


def _reading(values: Values, names: InstallationNames) -> Iterator[dict[str, Any]]:
    """In each namespace that somebody has named for it; where all are, they need no role of their own."""
    for kind, purpose, places in _where_asked(values):
        name = f"{names.cluster_control}-{purpose}"
        for place in places if EVERYWHERE not in places else ():
            metadata = {**names.metadata(name, namespaced=False), "namespace": place}
            yield {**_object("Role", names, name), "metadata": metadata, "rules": [_rule("", (kind,), _READ)]}
            yield {**_object("RoleBinding", names, name), "metadata": metadata, **_binding("Role", names, name)}


def _where_asked(values: Values) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """What is read only where somebody says so: what it is, for whom, and in which namespaces."""
    yield "configmaps", "authorities", values.gateways.config_maps_in
    yield "secrets", "gateways", values.gateways.secrets_in


def _rule(group: str, resources: Any, verbs: tuple[str, ...], *, only: tuple[str, ...] = ()) -> dict[str, Any]:
    found: dict[str, Any] = {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)}
    return {**found, "resourceNames": list(only)} if only else found


def _object(kind: str, names: InstallationNames, name: str) -> dict[str, Any]:
    metadata = names.metadata(name, namespaced=not kind.startswith("Cluster"))
    return {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": metadata}


def _binding(kind: str, names: InstallationNames, name: str) -> dict[str, Any]:
    return {
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": names.control, "namespace": names.namespace}],
    }
