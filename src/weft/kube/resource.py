"""Kinds of objects and where they are in the API. Whoever asks the client for something names it with one of these.
Rule: what comes from outside is quoted, so that no name can reach another path."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import msgspec

from weft.kube.error import KubeError


class Resource(msgspec.Struct, frozen=True):
    group: str  # "" for the core group
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def group_path(self) -> str:
        """Where the group says what it has."""
        return f"/apis/{quote(self.group, safe='')}/{quote(self.version, safe='')}" if self.group else "/api/v1"

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Without a namespace: of all namespaces. Without a name: the collection."""
        within = f"/namespaces/{_segment(namespace)}" if namespace and self.namespaced else ""
        one = f"/{_segment(name)}" if name else ""
        below = f"/{_segment(subresource)}" if subresource else ""
        return f"{self.group_path}{within}/{self.plural}{one}{below}"

    def __str__(self) -> str:
        """As kubectl and RBAC say it: `virtualservices.networking.istio.io`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


def _segment(name: str) -> str:
    if name in (".", ".."):  # quoting leaves these, and a URL resolves them
        raise KubeError(f"`{name}` is not a name")
    return quote(name, safe="")


PODS = Resource("", "v1", "pods", "Pod")
SERVICES = Resource("", "v1", "services", "Service")
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
SECRETS = Resource("", "v1", "secrets", "Secret")
SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
ENDPOINT_SLICES = Resource("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice")
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
DAEMON_SETS = Resource("apps", "v1", "daemonsets", "DaemonSet")
STATEFUL_SETS = Resource("apps", "v1", "statefulsets", "StatefulSet")
REPLICA_SETS = Resource("apps", "v1", "replicasets", "ReplicaSet")
JOBS = Resource("batch", "v1", "jobs", "Job")
POD_DISRUPTION_BUDGETS = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
_RBAC = "rbac.authorization.k8s.io"
ROLES = Resource(_RBAC, "v1", "roles", "Role")
ROLE_BINDINGS = Resource(_RBAC, "v1", "rolebindings", "RoleBinding")
CLUSTER_ROLES = Resource(_RBAC, "v1", "clusterroles", "ClusterRole", namespaced=False)
CLUSTER_ROLE_BINDINGS = Resource(_RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False)
_ADMISSION = "admissionregistration.k8s.io"
MUTATING_WEBHOOKS = Resource(
    _ADMISSION, "v1", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", namespaced=False
)
VALIDATING_WEBHOOKS = Resource(
    _ADMISSION, "v1", "validatingwebhookconfigurations", "ValidatingWebhookConfiguration", namespaced=False
)
CUSTOM_RESOURCE_DEFINITIONS = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False
)
CSI_DRIVERS = Resource("storage.k8s.io", "v1", "csidrivers", "CSIDriver", namespaced=False)
TOKEN_REVIEWS = Resource("authentication.k8s.io", "v1", "tokenreviews", "TokenReview", namespaced=False)
SELF_SUBJECT_ACCESS_REVIEWS = Resource(
    "authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", namespaced=False
)

_KNOWN = {
    (resource.api_version, resource.kind): resource
    for resource in list(globals().values())
    if type(resource) is Resource
}


def known(api_version: str, kind: str) -> Resource | None:
    """One of the above; anything else the API server must be asked for (`Client.find`)."""
    return _KNOWN.get((api_version, kind))


class Named(msgspec.Struct, frozen=True):
    """Who an object says it is."""

    api_version: str
    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"


def named(manifest: Mapping[str, Any]) -> Named:
    metadata = manifest.get("metadata")
    metadata = metadata if isinstance(metadata, Mapping) else {}
    parts = [manifest.get("apiVersion"), manifest.get("kind"), metadata.get("namespace", ""), metadata.get("name")]
    for field, part in zip(("apiVersion", "kind", "metadata.namespace", "metadata.name"), parts, strict=True):
        if not isinstance(part, str) or (not part and field != "metadata.namespace"):
            raise KubeError(f"an object without `{field}` cannot be sent", where=str(manifest.get("kind") or ""))
    return Named(*(str(part) for part in parts))
