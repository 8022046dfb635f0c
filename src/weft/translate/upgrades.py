"""Keeps the method and the status of HTTP/1.1 upgrades (such as to WebSocket) between two proxies.

HTTP/2 carries an upgrade as an extended CONNECT, which has neither the method of the request nor the status 101: Envoy
forwards every such request as GET, and every response 200 to it as 101. So a POST would become a GET, and a client
would believe that an application which ignores `Upgrade` and responds 200 has switched protocols.

So the sending proxy puts the method into a header, and the receiving proxy restores the method, before its guards. If
the application responds 200, the receiving proxy sends 203, which Envoy does not change, and the original status in
another header. For WebSocket the sending proxy restores the original status; for other upgrades the client gets the
203.

The header may come from any client, so only a name of capital letters is taken from it: spaces would let a client write
a second path into the request line, which no policy has seen.

Rule: requests without `Upgrade` run none of these filters. The sending proxy has them in the filter chains of upgrades
alone, the receiving proxy enables them in a route that matches `Upgrade`. Each Lua filter needs 180 KB of memory, so
only the filters that must set a method or a status are Lua.
"""

from __future__ import annotations

from functools import lru_cache

from envoy.config.core.v3.base_pb2 import HeaderValueOption
from envoy.config.route.v3.route_components_pb2 import FilterConfig, HeaderMatcher, Route
from envoy.extensions.filters.http.header_mutation.v3.header_mutation_pb2 import HeaderMutation
from envoy.extensions.filters.http.lua.v3.lua_pb2 import Lua
from envoy.extensions.filters.network.http_connection_manager.v3.http_connection_manager_pb2 import (
    HttpConnectionManager,
    HttpFilter,
)
from google.protobuf.any_pb2 import Any

from weft.model.proxy import UPGRADE_FILTER, UPGRADE_METHOD
from weft.translate.protos import packed

_WEBSOCKET = "websocket"
# Upgrades that Envoy must have by name: WebSocket; `exec` and `port-forward` of Kubernetes; `attach` of container
# engines. CONNECT has separate routes (`connects.py`).
UPGRADES = (_WEBSOCKET, "spdy/3.1", "tcp")
_STATUS = "x-weft-upgrade-status"

_SEND = f"""
function envoy_on_request(handle)
  handle:headers():replace("{UPGRADE_METHOD}", handle:headers():get(":method"))
end
function envoy_on_response(handle)
  if handle:headers():get("{_STATUS}") == "200" and handle:headers():get(":status") == "203" then
    handle:headers():replace(":status", "200")
  end
  handle:headers():remove("{_STATUS}")
end
"""
_RECEIVE = f"""
function envoy_on_request(handle)
  local method = handle:headers():get("{UPGRADE_METHOD}")
  handle:headers():remove("{UPGRADE_METHOD}")
  if method and method:match("^%u[%u-]*$") and handle:streamInfo():protocol() == "HTTP/2" then
    handle:headers():replace(":method", method)
  end
end
function envoy_on_response(handle)
  handle:headers():remove("{_STATUS}")
  if handle:headers():get(":status") == "200" and handle:streamInfo():protocol() == "HTTP/2" then
    handle:headers():replace(":status", "203")
    handle:headers():replace("{_STATUS}", "200")
  end
end
"""


def allow_upgrades(manager: HttpConnectionManager) -> None:
    for upgrade in UPGRADES:
        manager.upgrade_configs.add(upgrade_type=upgrade)


def send_upgrades(manager: HttpConnectionManager) -> None:
    """Let a connection manager send upgrades to other proxies. Call it after all HTTP filters are added: Envoy runs for
    an upgrade only the filters of the upgrade's own chain."""
    for upgrade in manager.upgrade_configs:
        first = _lua(_SEND) if upgrade.upgrade_type == _WEBSOCKET else _note_method()
        upgrade.filters.extend([HttpFilter(name=UPGRADE_FILTER, typed_config=first), *manager.http_filters])


def receive_upgrades(manager: HttpConnectionManager, route: Route) -> Route:
    """Let a connection manager receive upgrades from other proxies. Call it before other HTTP filters are added.
    Returns the route for upgrades, which must precede `route`."""
    manager.http_filters.add(name=UPGRADE_FILTER, typed_config=_lua(_RECEIVE), disabled=True)
    result = Route()
    result.CopyFrom(route)
    result.match.headers.append(HeaderMatcher(name="upgrade", present_match=True))
    enabled = FilterConfig()
    enabled.config.SetInParent()
    result.typed_per_filter_config[UPGRADE_FILTER].CopyFrom(packed(enabled))
    return result


@lru_cache(maxsize=2)
def _lua(script: str) -> Any:
    config = Lua()
    config.default_source_code.inline_string = script
    return packed(config)


@lru_cache(maxsize=1)
def _note_method() -> Any:
    config = HeaderMutation()
    added = config.mutations.request_mutations.add().append
    added.append_action = HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD
    added.header.key, added.header.value = UPGRADE_METHOD, "%REQ(:METHOD)%"
    return packed(config)
