"""The CustomResourceDefinitions of every Istio kind that weft reads. Groups, versions, names and the stored version are
Istio's own, so that a cluster that had Istio keeps its objects. The schemas are generated from weft's readers."""

from __future__ import annotations

from typing import Any

import msgspec

from weft.api.parse import KINDS
from weft.install.schema import Shape, recorded, whole_number

KEEP = {"helm.sh/resource-policy": "keep"}  # uninstalling the chart must not delete the users' objects


class KindDefinition(msgspec.Struct, frozen=True):
    kind: str
    plural: str
    what: str
    short: str = ""
    columns: tuple[tuple[str, str], ...] = ()  # columns of `kubectl get`: heading and path
    stored: str = "v1"

    @property
    def group(self) -> str:
        return KINDS[self.kind].versions[0].partition("/")[0]

    @property
    def versions(self) -> tuple[str, ...]:
        return tuple(version.partition("/")[2] for version in KINDS[self.kind].versions)


_HOSTS = ("Hosts", ".spec.hosts")

DEFINITIONS = (
    KindDefinition(
        "DestinationRule",
        "destinationrules",
        "How a host is called: balancing, connection pools, ejection, TLS and subsets.",
        "dr",
        (("Host", ".spec.host"),),
    ),
    KindDefinition("Gateway", "gateways", "The ports and hosts that a gateway at the edge of the mesh serves.", "gw"),
    KindDefinition(
        "ServiceEntry",
        "serviceentries",
        "Hosts of the mesh that no Kubernetes Service declares.",
        "se",
        (_HOSTS, ("Location", ".spec.location"), ("Resolution", ".spec.resolution")),
    ),
    KindDefinition(
        "Sidecar", "sidecars", "Which services the proxies of a namespace or of some workloads are configured for."
    ),
    KindDefinition(
        "VirtualService",
        "virtualservices",
        "Where requests for a host are routed, and how they are changed, retried or delayed.",
        "vs",
        (("Gateways", ".spec.gateways"), _HOSTS),
    ),
    KindDefinition(
        "WorkloadEntry",
        "workloadentries",
        "A workload outside the cluster, behind a ServiceEntry or a Service.",
        "we",
        (("Address", ".spec.address"),),
    ),
    KindDefinition(
        "AuthorizationPolicy",
        "authorizationpolicies",
        "Who may call a workload, and how.",
        "ap",
        (("Action", ".spec.action"),),
    ),
    KindDefinition(
        "PeerAuthentication",
        "peerauthentications",
        "Whether workloads are called over mutual TLS, without it, or both.",
        "pa",
        (("Mode", ".spec.mtls.mode"),),
    ),
    KindDefinition("RequestAuthentication", "requestauthentications", "Which JWTs workloads accept.", "ra"),
    KindDefinition("Telemetry", "telemetries", "What proxies report about requests.", "telemetry", stored="v1alpha1"),
)


def crds() -> list[dict[str, Any]]:
    return [_crd(definition) for definition in DEFINITIONS]


def _crd(definition: KindDefinition) -> dict[str, Any]:
    names: dict[str, Any] = {
        "categories": ["istio-io", f"{definition.group.replace('.', '-')}"],
        "kind": definition.kind,
        "listKind": f"{definition.kind}List",
        "plural": definition.plural,
        "singular": definition.kind.lower(),
    }
    if definition.short:
        names["shortNames"] = [definition.short]
    shape = recorded(definition.kind)
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{definition.plural}.{definition.group}",
            "labels": {"app": "istio-pilot", "app.kubernetes.io/name": "weft", "app.kubernetes.io/part-of": "weft"},
            "annotations": KEEP,
        },
        "spec": {
            "group": definition.group,
            "names": names,
            "scope": "Namespaced",
            "versions": [_version(definition, name, shape) for name in definition.versions],
        },
    }


def _version(definition: KindDefinition, name: str, shape: Shape) -> dict[str, Any]:
    columns = [{"name": heading, "type": "string", "jsonPath": path} for heading, path in definition.columns]
    columns += [
        {"name": "Accepted", "type": "string", "jsonPath": '.status.conditions[?(@.type=="Accepted")].status'},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ]
    return {
        "name": name,
        "served": True,
        "storage": name == definition.stored,
        "subresources": {"status": {}},
        "additionalPrinterColumns": columns,
        "schema": {"openAPIV3Schema": _object(definition, shape)},
    }


def _object(definition: KindDefinition, shape: Shape) -> dict[str, Any]:
    spec = shape.properties["spec"]
    schema: dict[str, Any] = {
        "description": definition.what,
        "type": "object",
        "properties": {"spec": spec.schema(), "status": _status()},
    }
    return schema if spec.optional else {**schema, "required": ["spec"]}


def _status() -> dict[str, Any]:
    """Return the schema of `status`, with Istio's fields. `conditions` is a list that the API server merges by
    `type`, so that several writers can each own one condition."""
    time = {"type": "string", "format": "date-time"}
    condition = {
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": True,
        "required": ["type"],
        "properties": {
            "type": {"type": "string"},
            "status": {"type": "string"},
            "reason": {"type": "string"},
            "message": {"type": "string"},
            "lastProbeTime": dict(time),
            "lastTransitionTime": dict(time),
            "observedGeneration": whole_number(),
        },
    }
    return {
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": True,
        "properties": {
            "conditions": {
                "type": "array",
                "items": condition,
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["type"],
            },
            "observedGeneration": whole_number(),
            "validationMessages": {
                "type": "array",
                "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            },
        },
    }
