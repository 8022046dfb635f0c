"""What a pod is a copy of: the Deployment, Job or other workload behind it, read off the pod as Istio does.

A pod names only its direct owner. A ReplicaSet's name ends in the hash that the pod has as a label, a CronJob's Job in
the time it was made for; without either, the owner is what it says.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

_HASH = "pod-template-hash"
_OF_CRON_JOB = re.compile(r"(.+)-\d{8,10}")  # of minutes, or, in old clusters, seconds
_MOST_NAME = 63


class WorkloadOwner(msgspec.Struct, frozen=True):
    api_version: str
    kind: str
    name: str

    def path(self, namespace: str) -> str:
        """As Istio tells it: kubernetes://apis/apps/v1/namespaces/shop/deployments/web"""
        kind = f"{self.kind.lower()}s"
        return f"kubernetes://apis/{self.api_version}/namespaces/{namespace}/{kind}/{self.name}"


def owner_of(metadata: Mapping[str, Any]) -> WorkloadOwner:
    """The workload that owns a pod, from its metadata; without a controller, the pod itself."""
    references = metadata.get("ownerReferences")
    for reference in references if isinstance(references, list) else ():
        if isinstance(reference, Mapping) and reference.get("controller"):
            version, kind, name = (reference.get(field) for field in ("apiVersion", "kind", "name"))
            if isinstance(version, str) and isinstance(kind, str) and isinstance(name, str) and name:
                return _behind(WorkloadOwner(version, kind, name), metadata)
    name = metadata.get("name") or str(metadata.get("generateName") or "").rstrip("-")
    return WorkloadOwner("v1", "Pod", str(name))


def _behind(owner: WorkloadOwner, metadata: Mapping[str, Any]) -> WorkloadOwner:
    labels = _labels(metadata)
    if owner.kind == "ReplicaSet" and (suffix := labels.get(_HASH)) and owner.name.endswith(f"-{suffix}"):
        return WorkloadOwner("apps/v1", "Deployment", owner.name.removesuffix(f"-{suffix}"))
    if owner.kind == "Job" and (found := _OF_CRON_JOB.fullmatch(owner.name)):
        return WorkloadOwner("batch/v1", "CronJob", found[1])
    return owner


def canonical_name(metadata: Mapping[str, Any], owner: WorkloadOwner) -> str:
    labels = _labels(metadata)
    # A label's value may be shorter than a name.
    return str(labels.get("app.kubernetes.io/name") or labels.get("app") or owner.name)[:_MOST_NAME].rstrip("-._")


def canonical_revision(metadata: Mapping[str, Any]) -> str:
    labels = _labels(metadata)
    return str(labels.get("app.kubernetes.io/version") or labels.get("version") or "latest")


def _labels(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    labels = metadata.get("labels")
    return labels if isinstance(labels, Mapping) else {}
