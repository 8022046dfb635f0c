"""Finds the workload behind a pod, such as a Deployment or a CronJob, from the pod's metadata, as Istio does.

A pod names only its direct owner. The name of a Deployment's ReplicaSet ends with the hash in the pod's label
`pod-template-hash`; the name of a CronJob's Job ends with its scheduled time. Without such a suffix, the direct owner
is the workload.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

_HASH = "pod-template-hash"
_OF_CRON_JOB = re.compile(r"(.+)-\d{8,10}")  # minutes since 1970, or seconds in old clusters
_MOST_NAME = 63


class WorkloadOwner(msgspec.Struct, frozen=True):
    api_version: str
    kind: str
    name: str

    def path(self, namespace: str) -> str:
        """Return the owner in the form that Istio uses: kubernetes://apis/apps/v1/namespaces/shop/deployments/web"""
        kind = f"{self.kind.lower()}s"
        return f"kubernetes://apis/{self.api_version}/namespaces/{namespace}/{kind}/{self.name}"


def owner_of(metadata: Mapping[str, Any]) -> WorkloadOwner:
    """Return the workload that owns a pod with this metadata; the pod itself if it has no controller."""
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
    if owner.kind == "Job" and (match := _OF_CRON_JOB.fullmatch(owner.name)):
        return WorkloadOwner("batch/v1", "CronJob", match[1])
    return owner


def canonical_name(metadata: Mapping[str, Any], owner: WorkloadOwner) -> str:
    labels = _labels(metadata)
    # A label's value has a lower length limit than a name.
    return str(labels.get("app.kubernetes.io/name") or labels.get("app") or owner.name)[:_MOST_NAME].rstrip("-._")


def canonical_revision(metadata: Mapping[str, Any]) -> str:
    labels = _labels(metadata)
    return str(labels.get("app.kubernetes.io/version") or labels.get("version") or "latest")


def _labels(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    labels = metadata.get("labels")
    return labels if isinstance(labels, Mapping) else {}
