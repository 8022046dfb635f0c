"""ResourceKind: a kind of objects and its paths in the Kubernetes API. The client's methods take a ResourceKind.
Rule: names are quoted, so that no name can lead to another path."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import msgspec

from weft.kube.error import KubeError


class ResourceKind(msgspec.Struct, frozen=True):
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
        """The path of the discovery document of the kind's group and version."""
        return f"/apis/{quote(self.group, safe='')}/{quote(self.version, safe='')}" if self.group else "/api/v1"

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Return the URL path of an object, or of one of its subresources. Without a name, return the path of the
        collection; without a namespace, that of the objects in all namespaces."""
        within = f"/namespaces/{_segment(namespace)}" if namespace and self.namespaced else ""
        one = f"/{_segment(name)}" if name else ""
        below = f"/{_segment(subresource)}" if subresource else ""
        return f"{self.group_path}{within}/{self.plural}{one}{below}"

    def __str__(self) -> str:
        """The resource as kubectl and RBAC name it, such as `virtualservices.networking.istio.io`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


def _segment(name: str) -> str:
    if name in (".", ".."):  # quoting does not change these names, and URL resolution would remove them
        raise KubeError(f"`{name}` is not a name")
    return quote(name, safe="")


PODS = ResourceKind("", "v1", "pods", "Pod")
SERVICES = ResourceKind("", "v1", "services", "Service")
CONFIG_MAPS = ResourceKind("", "v1", "configmaps", "ConfigMap")
SECRETS = ResourceKind("", "v1", "secrets", "Secret")
SERVICE_ACCOUNTS = ResourceKind("", "v1", "serviceaccounts", "ServiceAccount")
NAMESPACES = ResourceKind("", "v1", "namespaces", "Namespace", namespaced=False)
NODES = ResourceKind("", "v1", "nodes", "Node", namespaced=False)
ENDPOINT_SLICES = ResourceKind("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice")
LEASES = ResourceKind("coordination.k8s.io", "v1", "leases", "Lease")
DEPLOYMENTS = ResourceKind("apps", "v1", "deployments", "Deployment")
DAEMON_SETS = ResourceKind("apps", "v1", "daemonsets", "DaemonSet")
STATEFUL_SETS = ResourceKind("apps", "v1", "statefulsets", "StatefulSet")
REPLICA_SETS = ResourceKind("apps", "v1", "replicasets", "ReplicaSet")
JOBS = ResourceKind("batch", "v1", "jobs", "Job")
POD_DISRUPTION_BUDGETS = ResourceKind("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
_RBAC = "rbac.authorization.k8s.io"
ROLES = ResourceKind(_RBAC, "v1", "roles", "Role")
ROLE_BINDINGS = ResourceKind(_RBAC, "v1", "rolebindings", "RoleBinding")
CLUSTER_ROLES = ResourceKind(_RBAC, "v1", "clusterroles", "ClusterRole", namespaced=False)
CLUSTER_ROLE_BINDINGS = ResourceKind(_RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False)
_ADMISSION = "admissionregistration.k8s.io"
MUTATING_WEBHOOKS = ResourceKind(
    _ADMISSION, "v1", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", namespaced=False
)
VALIDATING_WEBHOOKS = ResourceKind(
    _ADMISSION, "v1", "validatingwebhookconfigurations", "ValidatingWebhookConfiguration", namespaced=False
)
CUSTOM_RESOURCE_DEFINITIONS = ResourceKind(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False
)
CSI_DRIVERS = ResourceKind("storage.k8s.io", "v1", "csidrivers", "CSIDriver", namespaced=False)
TOKEN_REVIEWS = ResourceKind("authentication.k8s.io", "v1", "tokenreviews", "TokenReview", namespaced=False)
SELF_SUBJECT_ACCESS_REVIEWS = ResourceKind(
    "authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", namespaced=False
)

_KNOWN = {
    (resource.api_version, resource.kind): resource
    for resource in list(globals().values())
    if type(resource) is ResourceKind
}


def known(api_version: str, kind: str) -> ResourceKind | None:
    """Return the constant of this module for a kind; None for other kinds, which need the API server's discovery
    (`Client.find`)."""
    return _KNOWN.get((api_version, kind))


class ObjectReference(msgspec.Struct, frozen=True):
    """The apiVersion, kind, namespace and name of an object."""

    api_version: str
    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"


def named(manifest: Mapping[str, Any]) -> ObjectReference:
    metadata = manifest.get("metadata")
    metadata = metadata if isinstance(metadata, Mapping) else {}
    parts = [manifest.get("apiVersion"), manifest.get("kind"), metadata.get("namespace", ""), metadata.get("name")]
    for field, part in zip(("apiVersion", "kind", "metadata.namespace", "metadata.name"), parts, strict=True):
        if not isinstance(part, str) or (not part and field != "metadata.namespace"):
            raise KubeError(f"an object without `{field}` cannot be sent", where=str(manifest.get("kind") or ""))
    return ObjectReference(*(str(part) for part in parts))
