"""Whose fault a refused resource is. A port's route configuration is made of everybody's routes, but Envoy refuses it
for one of them: those that are not in the version it took last."""

from __future__ import annotations

from envoy.config.core.v3.base_pb2 import Metadata
from envoy.config.route.v3.route_pb2 import RouteConfiguration

from weft.model.names import ObjectKey
from weft.translate.built import Built

_ROUTES = f"type.googleapis.com/{RouteConfiguration.DESCRIPTOR.full_name}"


def suspects(refused: Built, accepted: bytes) -> tuple[ObjectKey, ...]:
    """The objects behind what is new in a refused resource; all of its objects where that cannot be told."""
    if refused.type_url != _ROUTES:
        return refused.sources
    good = {
        (host.name, route.SerializeToString(deterministic=True))
        for host in RouteConfiguration.FromString(accepted).virtual_hosts
        for route in host.routes
    }
    new = [
        key
        for host in RouteConfiguration.FromString(refused.body).virtual_hosts
        for route in host.routes
        if (host.name, route.SerializeToString(deterministic=True)) not in good
        for key in _sources(route.metadata)
    ]
    return tuple(dict.fromkeys(new)) or refused.sources


def _sources(metadata: Metadata) -> list[ObjectKey]:
    if "weft" not in metadata.filter_metadata:
        return []
    listed = metadata.filter_metadata["weft"].fields["sources"].list_value.values
    fields = [each.struct_value.fields for each in listed]
    return [
        ObjectKey(each["kind"].string_value, each["namespace"].string_value, each["name"].string_value)
        for each in fields
    ]
