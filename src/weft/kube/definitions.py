"""Determines which of Istio's and the Gateway API's kinds the API server has, and which version of each kind weft
watches. The input is a CustomResourceDefinition, the output the resource to watch."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from weft.api.kinds import GATEWAY_API, group_of, key_kind
from weft.api.parse import KINDS
from weft.kube.objects import DefinitionObject, DefinitionVersion
from weft.kube.resource import ResourceKind

# The kinds that weft watches, by the kind in an ObjectKey: the API group (other groups have kinds of the same name) and
# its versions, the preferred version first.
WANTED = {
    kind: (group, tuple(each.partition("/")[2] for each in reader.versions))
    for kind, reader in KINDS.items()
    if (group := group_of(reader.versions[0])).endswith(".istio.io") or group == GATEWAY_API
}


class ServedDefinition(msgspec.Struct, frozen=True):
    resource: ResourceKind
    has_status: bool  # the kind has a status subresource, which is written separately from the object
    conditions_apart: bool = False  # each condition has its own field manager; else a write replaces all


def served(definition: DefinitionObject) -> ServedDefinition | None:
    """Return the resource that the CustomResourceDefinition `definition` serves, in the version that weft reads. None
    if weft does not watch the kind, or if the server does not serve the kind yet in a version that weft reads."""
    spec = definition.spec
    group, versions = WANTED.get(key_kind(f"{spec.group}/", spec.names.kind), ("", ()))
    if spec.group != group or not group or not _is_established(definition):
        return None
    offered = {each.name: each for each in _served(spec.versions or ())}
    chosen = next((offered[version] for version in versions if version in offered), None)
    if chosen is None:
        return None
    resource = ResourceKind(group, chosen.name, spec.names.plural, spec.names.kind, spec.scope == "Namespaced")
    has_status = chosen.subresources is not None and chosen.subresources.status is not None
    conditions = chosen.schema.whole.properties.status.properties.conditions
    return ServedDefinition(resource, has_status, conditions.list_type == "map")


def _served(versions: Iterable[DefinitionVersion]) -> Iterable[DefinitionVersion]:
    return (each for each in versions if each.served)


def _is_established(definition: DefinitionObject) -> bool:
    return any(each.type == "Established" and each.status == "True" for each in definition.status.conditions or ())
