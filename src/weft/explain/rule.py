"""One rule of a policy, as Envoy holds it: whether what a guard sees is something that it is about (`permits`), by
somebody that it is about (`is_`)."""

from __future__ import annotations

from typing import Any

import msgspec
from envoy.config.rbac.v3.rbac_pb2 import Permission, Principal

from weft.explain import matchers
from weft.explain.decision import Unsure
from weft.explain.listener import IncomingConnection
from weft.explain.request import RequestHeaders


class GuardInput(msgspec.Struct):
    """What a guard can look at. Filters add to the metadata as they go."""

    connection: IncomingConnection
    identities: tuple[str, ...] = ()  # of the certificate that the caller has shown
    remote: str = ""  # who called first, as X-Forwarded-For says
    headers: RequestHeaders = msgspec.field(default_factory=RequestHeaders)
    http2: bool = False
    metadata: dict[str, dict[str, Any]] = msgspec.field(default_factory=dict)


def permits(permission: Permission, seen: GuardInput) -> bool:
    kind = permission.WhichOneof("rule")
    connection = seen.connection
    match kind:
        case "any":
            return bool(permission.any)
        case "and_rules":
            return all(permits(each, seen) for each in permission.and_rules.rules)
        case "or_rules":
            return any(permits(each, seen) for each in permission.or_rules.rules)
        case "not_rule":
            return not permits(permission.not_rule, seen)
        case "header":
            return matchers.header(permission.header, seen.headers)
        case "url_path":
            return _asks_for_path(seen) and matchers.path(permission.url_path, seen.headers.value(":path"))
        case "destination_ip":
            return matchers.address(permission.destination_ip, connection.address)
        case "destination_port":
            return bool(permission.destination_port == connection.port)
        case "destination_port_range":
            ports = permission.destination_port_range
            return bool(ports.start <= connection.port < ports.end)
        case "metadata":
            return matchers.metadata(permission.metadata, seen.metadata)
        case "requested_server_name":
            return matchers.text(permission.requested_server_name, connection.server_name)
    raise Unsure(f"a policy asks about {kind or 'nothing'}, which cannot be told here")


def is_(principal: Principal, seen: GuardInput) -> bool:
    kind = principal.WhichOneof("identifier")
    match kind:
        case "any":
            return bool(principal.any)
        case "and_ids":
            return all(is_(each, seen) for each in principal.and_ids.ids)
        case "or_ids":
            return any(is_(each, seen) for each in principal.or_ids.ids)
        case "not_id":
            return not is_(principal.not_id, seen)
        case "authenticated":
            if not seen.identities:
                return False
            name = principal.authenticated.principal_name
            given = principal.authenticated.HasField("principal_name")
            return not given or any(matchers.text(name, each) for each in seen.identities)
        case "direct_remote_ip" | "source_ip":
            return matchers.address(getattr(principal, kind), seen.connection.source)
        case "remote_ip":
            return matchers.address(principal.remote_ip, seen.remote or seen.connection.source)
        case "header":
            return matchers.header(principal.header, seen.headers)
        case "url_path":
            return _asks_for_path(seen) and matchers.path(principal.url_path, seen.headers.value(":path"))
        case "metadata":
            return matchers.metadata(principal.metadata, seen.metadata)
    raise Unsure(f"a policy asks about {kind or 'nothing'}, which cannot be told here")


def _asks_for_path(seen: GuardInput) -> bool:
    """A CONNECT asks for a host alone: no path is its, and of those that are left out none is."""
    return seen.headers.has(":path") and seen.headers.value(":method") != "CONNECT"
