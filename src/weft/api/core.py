"""Reads Kubernetes' Namespace and ServiceAccount. weft needs their names and the labels of a Namespace."""

from __future__ import annotations

from weft.api.metadata import Meta
from weft.api.reader import Fields
from weft.api.traffic_distribution import ANNOTATION
from weft.model.settings import Namespace, ServiceAccount


def read_namespace(root: Fields, meta: Meta) -> tuple[Namespace, ...]:
    root.ignored("spec")
    if ANNOTATION in dict(meta.annotations):
        what = f"weft reads `{ANNOTATION}` of Services and ServiceEntries, not of a Namespace"
        root.warning(("metadata", "annotations", ANNOTATION), what, "set `trafficDistribution` of each Service")
    return (Namespace(name=meta.name, labels=meta.labels, origin=meta.origin),)


def read_service_account(root: Fields, meta: Meta) -> tuple[ServiceAccount, ...]:
    root.ignored("secrets", "imagePullSecrets", "automountServiceAccountToken")
    return (ServiceAccount(name=meta.name, namespace=meta.namespace, origin=meta.origin),)
