"""The filters that protect a workload: request authentication first, then authorization policies. Every inbound chain
has the same guards, also those of ports that no service names."""

from __future__ import annotations

import msgspec
from envoy.config.listener.v3.listener_components_pb2 import Filter
from envoy.extensions.filters.network.http_connection_manager.v3.http_connection_manager_pb2 import HttpFilter

from weft.translate import authorization, request_authentication
from weft.translate.view import GroupView


class Guards(msgspec.Struct, frozen=True):
    http: tuple[HttpFilter, ...] = ()
    network: tuple[Filter, ...] = ()  # of chains that are not HTTP
    unknown: tuple[Filter, ...] = ()  # of chains for bytes that were not detected as HTTP, but may be HTTP
    noted: frozenset[str] = frozenset()  # what they may add to the access log, see `authorization.noted`


def guards_of(view: GroupView, *, published: int = 0) -> Guards:
    """`published`: the guards are behind the socket on which a gateway's port is published."""
    network = authorization.network_filters(view, published=published)
    return Guards(
        http=(*request_authentication.filters(view), *authorization.http_filters(view, published=published)),
        network=network,
        unknown=(*request_authentication.network_filters(view), *network),
        noted=authorization.noted(view),
    )
