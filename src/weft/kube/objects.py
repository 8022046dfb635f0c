"""Structs of Kubernetes objects, with only the fields that the mesh reads. All other fields (managedFields, most of
a pod such as its volumes, most statuses) are skipped while decoding and cost neither time nor memory."""

from __future__ import annotations

import msgspec


class OwnerReference(msgspec.Struct, rename="camel"):
    kind: str = ""
    name: str = ""
    controller: bool | None = None


class Metadata(msgspec.Struct, rename="camel"):
    name: str = ""
    namespace: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    creation_timestamp: str | None = None
    generation: int = 0
    resource_version: str = ""


# Objects that `api/` parses: it validates their `spec` and `data`.


class ObjectCondition(msgspec.Struct, rename="camel", frozen=True):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None
    observed_generation: int = 0


class ObjectStatus(msgspec.Struct):
    conditions: list[ObjectCondition] | None = None


class WrittenObject(msgspec.Struct):
    """Any object that a user writes, such as a VirtualService or a Service."""

    metadata: Metadata
    spec: msgspec.Raw = msgspec.Raw(b"")
    data: msgspec.Raw = msgspec.Raw(b"")


class JudgedObject(WrittenObject):
    """An object with a status subresource that weft writes conditions to. The status is decoded separately, so that
    a status of unexpected shape does not reject the object."""

    status: msgspec.Raw = msgspec.Raw(b"")


class NamedObject(msgspec.Struct):
    """An object of which weft reads only the metadata, such as its name and labels."""

    metadata: Metadata


# Pods


class PodAnnotations(msgspec.Struct):
    injected: str | None = msgspec.field(default=None, name="sidecar.istio.io/status")
    include_inbound: str | None = msgspec.field(default=None, name="traffic.sidecar.istio.io/includeInboundPorts")
    exclude_inbound: str | None = msgspec.field(default=None, name="traffic.sidecar.istio.io/excludeInboundPorts")


class PodMetadata(msgspec.Struct, rename="camel"):
    name: str
    namespace: str
    uid: str = ""
    labels: dict[str, str] | None = None
    annotations: PodAnnotations | None = None
    owner_references: list[OwnerReference] | None = None
    deletion_timestamp: str | None = None


class ContainerPort(msgspec.Struct, rename="camel"):
    container_port: int = 0
    name: str = ""
    protocol: str = "TCP"


class ContainerObject(msgspec.Struct, rename="camel"):
    name: str = ""
    args: list[str] | None = None
    ports: list[ContainerPort] | None = None
    restart_policy: str = ""


class PodSpec(msgspec.Struct, rename="camel"):
    node_name: str = ""
    service_account_name: str = ""
    host_network: bool = False
    containers: list[ContainerObject] | None = None
    init_containers: list[ContainerObject] | None = None


class PodAddress(msgspec.Struct):
    ip: str = ""


class PodCondition(msgspec.Struct):
    type: str = ""
    status: str = ""


class PodObjectStatus(msgspec.Struct, rename="camel"):
    phase: str = ""
    pod_ip: str = msgspec.field(default="", name="podIP")
    pod_ips: list[PodAddress] | None = msgspec.field(default=None, name="podIPs")
    conditions: list[PodCondition] | None = None


class PodObject(msgspec.Struct):
    metadata: PodMetadata
    spec: PodSpec = msgspec.field(default_factory=PodSpec)
    status: PodObjectStatus = msgspec.field(default_factory=PodObjectStatus)


# EndpointSlices


class TargetReference(msgspec.Struct):
    kind: str = ""
    name: str = ""
    namespace: str = ""


class EndpointConditions(msgspec.Struct):
    """The conditions of an endpoint. None means that the condition is not set; `endpoint_slices.py` has the default of
    each condition."""

    ready: bool | None = None
    serving: bool | None = None
    terminating: bool | None = None


class SliceEndpointObject(msgspec.Struct, rename="camel"):
    addresses: list[str] | None = None
    conditions: EndpointConditions | None = None
    target_ref: TargetReference | None = None


class SlicePort(msgspec.Struct):
    name: str | None = None
    port: int | None = None
    protocol: str | None = None


class SliceLabels(msgspec.Struct):
    service: str = msgspec.field(default="", name="kubernetes.io/service-name")
    managed_by: str = msgspec.field(default="", name="endpointslice.kubernetes.io/managed-by")


class SliceMetadata(msgspec.Struct):
    name: str
    namespace: str
    labels: SliceLabels | None = None


class Slice(msgspec.Struct, rename="camel"):
    metadata: SliceMetadata
    address_type: str = ""
    endpoints: list[SliceEndpointObject] | None = None
    ports: list[SlicePort] | None = None


# CustomResourceDefinitions


class DefinitionNames(msgspec.Struct):
    kind: str = ""
    plural: str = ""


class Subresources(msgspec.Struct):
    status: dict[str, object] | None = None


class ListSchema(msgspec.Struct):
    list_type: str = msgspec.field(default="", name="x-kubernetes-list-type")


class StatusFields(msgspec.Struct):
    conditions: ListSchema = msgspec.field(default_factory=ListSchema)


class StatusSchema(msgspec.Struct):
    properties: StatusFields = msgspec.field(default_factory=StatusFields)


class ObjectFields(msgspec.Struct):
    status: StatusSchema = msgspec.field(default_factory=StatusSchema)


class ObjectSchema(msgspec.Struct):
    properties: ObjectFields = msgspec.field(default_factory=ObjectFields)


class DefinitionSchema(msgspec.Struct):
    """The `schema` of a version of a CustomResourceDefinition (`whole`: its openAPIV3Schema). Only
    `x-kubernetes-list-type` of `status.conditions` is read from it: whether the API server merges the conditions of
    several writers by type, or treats the list as one value."""

    whole: ObjectSchema = msgspec.field(default_factory=ObjectSchema, name="openAPIV3Schema")


class DefinitionVersion(msgspec.Struct):
    name: str = ""
    served: bool = False
    subresources: Subresources | None = None
    schema: DefinitionSchema = msgspec.field(default_factory=DefinitionSchema)


class DefinitionSpec(msgspec.Struct):
    group: str = ""
    scope: str = "Namespaced"
    names: DefinitionNames = msgspec.field(default_factory=DefinitionNames)
    versions: list[DefinitionVersion] | None = None


class DefinitionStatus(msgspec.Struct):
    conditions: list[PodCondition] | None = None


class DefinitionObject(msgspec.Struct):
    """A CustomResourceDefinition. Its schemas are skipped, except `status.conditions`."""

    metadata: Metadata
    spec: DefinitionSpec = msgspec.field(default_factory=DefinitionSpec)
    status: DefinitionStatus = msgspec.field(default_factory=DefinitionStatus)
