"""Builds the guards of a workload, the filters that reject callers: request authentication first, then authorization
policies. Every inbound filter chain has the same guards, also for ports that no service names."""

from __future__ import annotations

import msgspec
from envoy.config.listener.v3.listener_components_pb2 import Filter
from envoy.extensions.filters.network.http_connection_manager.v3.http_connection_manager_pb2 import HttpFilter

from weft.translate import authorization, request_authentication
from weft.translate.rbac import Connections
from weft.translate.view import GroupView


class Guards(msgspec.Struct, frozen=True):
    http: tuple[HttpFilter, ...] = ()
    network: tuple[Filter, ...] = ()  # for chains that are not HTTP
    unknown: tuple[Filter, ...] = ()  # for chains whose bytes were not detected as HTTP, but may be HTTP
    noted: frozenset[str] = frozenset()  # metadata prefixes that they write, see `authorization.noted`


def guards_of(view: GroupView, connections: Connections = Connections()) -> Guards:  # noqa: B008 - frozen
    """Return the guards of a group. `connections`: the kind of connections that the guards are for."""
    network = authorization.network_filters(view, connections)
    return Guards(
        http=(*request_authentication.filters(view), *authorization.http_filters(view, connections)),
        network=network,
        unknown=(*request_authentication.network_filters(view), *network),
        noted=authorization.noted(view),
    )
