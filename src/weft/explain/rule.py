"""Evaluates one policy of an RBAC filter against a request or connection: its permissions (`permits`) and its
principals (`is_`)."""

from __future__ import annotations

from typing import Any

import msgspec
from envoy.config.rbac.v3.rbac_pb2 import Permission, Principal

from weft.explain import matchers
from weft.explain.decision import Unsure
from weft.explain.listener import IncomingConnection
from weft.explain.request import RequestHeaders


class GuardInput(msgspec.Struct):
    """The request or connection as RBAC rules see it. `identities`: those in the caller's certificate. `remote`: the
    address of the original client, from X-Forwarded-For. `http2`: the request is HTTP/2. `metadata`: Envoy's dynamic
    metadata by filter name; filters add to it as they run."""

    connection: IncomingConnection
    identities: tuple[str, ...] = ()
    remote: str = ""
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
    raise Unsure(f"a policy has the condition {kind or 'nothing'}, which is not simulated")


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
    raise Unsure(f"a policy has the condition {kind or 'nothing'}, which is not simulated")


def _asks_for_path(seen: GuardInput) -> bool:
    """Whether the request has a path that rules can match. False for a CONNECT request, which has only a host, so
    that neither `paths` nor `notPaths` of a rule match it."""
    return seen.headers.has(":path") and seen.headers.value(":method") != "CONNECT"
