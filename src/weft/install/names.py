"""The names of all objects of an installation. The default revision has plain names; every other revision appends its
own name, so that revisions can run side by side. Objects that Istio also has get Istio's names."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any, Final

import msgspec

from weft import __version__
from weft.install.values import DEFAULT_REVISION, Values
from weft.model.proxy import IDENTITY_DRIVER

OWNED_BY: Final = {"app.kubernetes.io/name": "weft"}
REVISION: Final = "istio.io/rev"
ROOT_SECRET: Final = "istio-ca-secret"  # noqa: S105
# Prefix of an annotation on the roots' ConfigMap; the control plane's `owner` follows, the value is its roots' digests.
ROOTS_ANNOTATION: Final = "roots.weft.dev/"

XDS_PORT: Final = 15010
SECURE_PORT: Final = 15012  # xDS and the CA, with TLS
MONITORING_PORT: Final = 15014
WEBHOOK_PORT: Final = 15017


class InstallationNames(msgspec.Struct, frozen=True):
    revision: str
    namespace: str

    @classmethod
    def of(cls, values: Values) -> InstallationNames:
        return cls(values.revision, values.namespace)

    @property
    def is_default(self) -> bool:
        return self.revision == DEFAULT_REVISION

    def with_revision(self, name: str) -> str:
        return name if self.is_default else f"{name}-{self.revision}"

    @property
    def control(self) -> str:
        """The name of the control plane's Deployment, ServiceAccount, PodDisruptionBudget, Role and RoleBinding."""
        return self.with_revision("weft-control")

    @property
    def node(self) -> str:
        return self.with_revision("weft-node")

    @property
    def cluster_control(self) -> str:
        """The name of the control plane's cluster-scoped objects. It contains the installation's namespace, so that
        it is unique among the meshes of a cluster."""
        return f"{self.control}-{self.namespace}"

    @property
    def owner(self) -> str:
        """An identifier of this control plane, unique in the cluster and short enough for a label (63 characters)."""
        name = f"{self.namespace}.{self.revision}"
        return name if len(name) <= 63 else blake2b(name.encode(), digest_size=16).hexdigest()

    @property
    def roots_annotation(self) -> str:
        return f"{ROOTS_ANNOTATION}{self.owner}"

    @property
    def service(self) -> str:
        return self.with_revision("istiod")

    @property
    def service_host(self) -> str:
        return f"{self.service}.{self.namespace}.svc"

    @property
    def driver(self) -> str:
        return IDENTITY_DRIVER if self.is_default else f"{self.revision}.{IDENTITY_DRIVER}"

    @property
    def lease(self) -> str:
        return self.with_revision("weft-leader")

    @property
    def refusals(self) -> str:
        """The name of the ConfigMap in which replicas share which resources their proxies rejected."""
        return self.with_revision("weft-refusals")

    @property
    def mesh_config(self) -> str:
        return self.with_revision("istio")

    @property
    def injector(self) -> str:
        """The name of the injection webhook's configuration and of the ConfigMap with its settings."""
        return self.with_revision("istio-sidecar-injector")

    @property
    def validator(self) -> str:
        middle = "" if self.is_default else f"{self.revision}-"
        return f"istio-validator-{middle}{self.namespace}"

    @property
    def labels(self) -> dict[str, str]:
        """The labels of every object of this revision. `weft install` finds the obsolete objects of an older version by
        them."""
        return {**OWNED_BY, "app.kubernetes.io/part-of": "weft", "app.kubernetes.io/version": __version__,
                REVISION: self.revision}  # fmt: skip

    @property
    def selector(self) -> str:
        return ",".join(f"{name}={value}" for name, value in {**OWNED_BY, REVISION: self.revision}.items())

    def metadata(self, name: str, *, namespaced: bool = True, **labels: str) -> dict[str, Any]:
        fields: dict[str, Any] = {"name": name, "labels": {**self.labels, **labels}}
        return {**fields, "namespace": self.namespace} if namespaced else fields
