"""Write the config that a proxy should have in the format of Envoy's /config_dump, so that it can be compared with
the dump of the proxy itself.

Input: a group. Output: the sections of a dump, as messages or as JSON with Envoy's names. Rule: secrets come from
the node agents and are not included.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from envoy.admin.v3 import config_dump_shared_pb2
from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.endpoint.v3.endpoint_pb2 import ClusterLoadAssignment
from envoy.config.listener.v3.listener_pb2 import Listener
from envoy.config.route.v3.route_pb2 import RouteConfiguration
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import Message

from weft.control.connected_proxies import Diagnosis
from weft.envoy.messages import as_dict
from weft.model.group import Group
from weft.xds.table import Resource
from weft.xds.types import CLUSTER, ENDPOINT, LISTENER, ROUTE

_PREFIX = "type.googleapis.com/envoy.admin.v3."
_AT_ONCE = 16  # resources that are written as JSON before yielding to the event loop; each takes up to a millisecond
_MESSAGES: dict[str, type[Message]] = {
    CLUSTER: Cluster,
    ENDPOINT: ClusterLoadAssignment,
    LISTENER: Listener,
    ROUTE: RouteConfiguration,
}


async def as_json(diagnosis: Diagnosis, group: Group, *, include_eds: bool) -> dict[str, Any]:
    """Return the dump of the config of a group as JSON, with endpoints if `include_eds`. The key `refused` lists the
    resources that proxies rejected, which are not sent again until they change."""
    sections = await sections_of(lambda type_url: diagnosis.resources(group, type_url), include_eds=include_eds)
    refused = [
        {"type_url": type_url, "name": name, "version_info": why.version, "details": why.detail}
        for (type_url, name), why in diagnosis.refused(group).items()
    ]
    return {"configs": sections, **({"refused": refused} if refused else {})}


async def sections_of(
    resources: Callable[[str], Mapping[str, Resource]], *, include_eds: bool = True
) -> list[dict[str, Any]]:
    """Return the sections of a dump as JSON, with endpoints if `include_eds`. `resources`: returns the resources of a
    type, by name."""

    async def written(type_url: str) -> list[tuple[Resource, dict[str, Any]]]:
        bodies = []
        for number, resource in enumerate(_ordered(resources(type_url))):
            message = _MESSAGES[type_url]()
            message.ParseFromString(resource.body)
            bodies.append((resource, {"@type": type_url, **as_dict(message)}))
            if number % _AT_ONCE == _AT_ONCE - 1:
                await asyncio.sleep(0)
        return bodies

    clusters = [{"version_info": each.version, "cluster": body} for each, body in await written(CLUSTER)]
    listeners = [
        {"name": each.name, "active_state": {"version_info": each.version, "listener": body}}
        for each, body in await written(LISTENER)
    ]
    routes = [{"version_info": each.version, "route_config": body} for each, body in await written(ROUTE)]
    sections = [
        _section("BootstrapConfigDump"),
        _section("ClustersConfigDump", dynamic_active_clusters=clusters),
        _section("ListenersConfigDump", dynamic_listeners=listeners),
        _section("ScopedRoutesConfigDump"),
        _section("RoutesConfigDump", dynamic_route_configs=routes),
        _section("SecretsConfigDump"),
    ]
    if include_eds:
        endpoints = [{"version_info": each.version, "endpoint_config": body} for each, body in await written(ENDPOINT)]
        sections.insert(2, _section("EndpointsConfigDump", dynamic_endpoint_configs=endpoints))
    return sections


def as_messages(diagnosis: Diagnosis, group: Group) -> list[AnyMessage]:
    """Return the sections of the dump of a group's config as messages for an xDS stream, without endpoints, as Istio
    does. The resources are copied as bytes, not parsed."""
    clusters = config_dump_shared_pb2.ClustersConfigDump()
    for resource in _ordered(diagnosis.resources(group, CLUSTER)):
        _fill(clusters.dynamic_active_clusters.add(version_info=resource.version).cluster, CLUSTER, resource)
    listeners = config_dump_shared_pb2.ListenersConfigDump()
    for resource in _ordered(diagnosis.resources(group, LISTENER)):
        state = listeners.dynamic_listeners.add(name=resource.name).active_state
        state.version_info = resource.version
        _fill(state.listener, LISTENER, resource)
    routes = config_dump_shared_pb2.RoutesConfigDump()
    for resource in _ordered(diagnosis.resources(group, ROUTE)):
        _fill(routes.dynamic_route_configs.add(version_info=resource.version).route_config, ROUTE, resource)
    parts: tuple[tuple[str, Message | None], ...] = (
        ("BootstrapConfigDump", None),
        ("ClustersConfigDump", clusters),
        ("ListenersConfigDump", listeners),
        ("ScopedRoutesConfigDump", None),
        ("RoutesConfigDump", routes),
        ("SecretsConfigDump", None),
    )
    return [
        AnyMessage(type_url=_PREFIX + name, value=part.SerializeToString() if part is not None else b"")
        for name, part in parts
    ]


def _section(name: str, **parts: list[dict[str, Any]]) -> dict[str, Any]:
    return {"@type": _PREFIX + name, **{key: part for key, part in parts.items() if part}}


def _ordered(resources: Mapping[str, Resource]) -> Iterable[Resource]:
    """The resources, sorted by name. The list is a copy, since the table may change while the event loop runs other
    tasks."""
    return [resources[name] for name in sorted(resources)]


def _fill(message: AnyMessage, type_url: str, resource: Resource) -> None:
    message.type_url, message.value = type_url, resource.body
