"""The RBAC roles of the control plane, with no verb more than it needs. The node agent has no role: it only has a token
for the CA.

In the whole cluster, the control plane may: read the objects of a mesh, write the status of Istio's and the Gateway
API's kinds, create TokenReviews, keep the roots in one ConfigMap of each namespace, and change its own webhook
configurations. With `gateways.deployments` it may also create proxies for Gateways. In its own namespace it may change
the objects it created, by name. Kubernetes cannot limit `create` by name, so only that verb is wider. It may read
Secrets of gateways and ConfigMaps with CA certificates of backends only in the namespaces of `gateways.secretsIn` and
`gateways.configMapsIn`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from weft.api.kinds import GATEWAY_API
from weft.install.crds import DEFINITIONS
from weft.install.names import ROOT_SECRET, InstallationNames
from weft.install.values import EVERYWHERE, Values
from weft.model.proxy import ROOT_CONFIG_MAP

_READ = ("get", "list", "watch")
# The kinds of the Gateway API, which weft reads and does not install.
_WITH_STATUS = (
    "backendtlspolicies",
    "gatewayclasses",
    "gateways",
    "grpcroutes",
    "httproutes",
    "listenersets",
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
        _rule("apiextensions.k8s.io", ("customresourcedefinitions",), _READ),  # which kinds and versions are served
        *(_rule(group, plurals, _READ) for group, plurals in kinds.items()),
        *(_rule(group, [f"{plural}/status" for plural in plurals], ("patch",)) for group, plurals in kinds.items()),
        _rule(GATEWAY_API, _STANDARD, _READ),
        _rule(GATEWAY_API, [f"{plural}/status" for plural in _WITH_STATUS], ("update",)),  # its lists are atomic
        *(_gateway_rules() if values.gateways.deployments else ()),
        _rule("authentication.k8s.io", ("tokenreviews",), ("create",)),
        *(_rule("", (kind,), _READ) for kind, _, places in _namespaced_reads(values) if EVERYWHERE in places),
        _rule("", ("configmaps",), ("create",)),
        _rule("", ("configmaps",), (*_READ, "patch"), only=(ROOT_CONFIG_MAP,)),
        _rule("admissionregistration.k8s.io", ("mutatingwebhookconfigurations",), (*_READ, "patch"),
              only=(names.injector,)),
        _rule("admissionregistration.k8s.io", ("validatingwebhookconfigurations",), (*_READ, "patch"),
              only=(names.validator,)),
    ]  # fmt: skip


def _gateway_rules() -> tuple[dict[str, Any], ...]:
    """Return the rules for creating gateway proxies. There is no `delete`: Kubernetes garbage-collects the objects that
    a Gateway owns. `get` of Deployments is needed to check the owner first."""
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
        *_namespaced_roles(values, names),
    ]


def _namespaced_roles(values: Values, names: InstallationNames) -> Iterator[dict[str, Any]]:
    """Yield a Role and a RoleBinding for each namespace in `secretsIn` and `configMapsIn`. For a list that contains
    `*`, yield none: then the control plane's ClusterRole has the permission."""
    for kind, purpose, places in _namespaced_reads(values):
        name = f"{names.cluster_control}-{purpose}"
        for place in places if EVERYWHERE not in places else ():
            metadata = {**names.metadata(name, namespaced=False), "namespace": place}
            yield {**_object("Role", names, name), "metadata": metadata, "rules": [_rule("", (kind,), _READ)]}
            yield {**_object("RoleBinding", names, name), "metadata": metadata, **_binding("Role", names, name)}


def _namespaced_reads(values: Values) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Yield (resource, purpose, namespaces) for each resource that the control plane may read only in configured
    namespaces. The purpose is a part of the role's name."""
    yield "configmaps", "authorities", values.gateways.config_maps_in
    yield "secrets", "gateways", values.gateways.secrets_in


def _rule(group: str, resources: Any, verbs: tuple[str, ...], *, only: tuple[str, ...] = ()) -> dict[str, Any]:
    rule: dict[str, Any] = {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)}
    return {**rule, "resourceNames": list(only)} if only else rule


def _object(kind: str, names: InstallationNames, name: str) -> dict[str, Any]:
    metadata = names.metadata(name, namespaced=not kind.startswith("Cluster"))
    return {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": metadata}


def _binding(kind: str, names: InstallationNames, name: str) -> dict[str, Any]:
    return {
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": names.control, "namespace": names.namespace}],
    }
