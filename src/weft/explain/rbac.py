"""Policies as Envoy's RBAC filters hold them: who may do what, and what they only take note of."""

from __future__ import annotations

from typing import Any

import msgspec
from envoy.config.rbac.v3.rbac_pb2 import RBAC, Permission, Principal
from envoy.extensions.filters.http.rbac.v3 import rbac_pb2 as http_rbac
from envoy.extensions.filters.network.rbac.v3 import rbac_pb2 as network_rbac

from weft.explain import matchers
from weft.explain.decision import Stage, Unsure, policy_source
from weft.explain.listener import Connection
from weft.explain.request import Headers
from weft.explain.walk import Walk

HTTP_FILTER, NETWORK_FILTER = "envoy.filters.http.rbac", "envoy.filters.network.rbac"


class Seen(msgspec.Struct):
    """What a guard can look at. Filters add to the metadata as they go."""

    connection: Connection
    identities: tuple[str, ...] = ()  # of the certificate that the caller has shown
    remote: str = ""  # who called first, as X-Forwarded-For says
    headers: Headers = msgspec.field(default_factory=Headers)
    http2: bool = False
    metadata: dict[str, dict[str, Any]] = msgspec.field(default_factory=dict)


def denied(walk: Walk, config: http_rbac.RBAC | network_rbac.RBAC, seen: Seen) -> str | None:
    """Why it is, in Envoy's words; None if it is not. What the shadow rules say goes into the metadata."""
    if config.HasField("shadow_rules"):
        _note(walk, config, seen)
    if not config.HasField("rules"):
        return None
    rules = config.rules
    matched = effective(rules, seen)
    if rules.action == RBAC.LOG:
        if matched:
            walk.tell(Stage.POLICY, f"{_named(matched)} marks it for the access log", policy_source(matched))
        return None
    if rules.action == RBAC.ALLOW:
        if matched:
            walk.tell(Stage.POLICY, f"{_named(matched)} allows it", policy_source(matched))
            return None
        asked = tuple(source for name in sorted(rules.policies) for source in policy_source(name))
        walk.tell(Stage.POLICY, "no rule that allows matches, so it is denied", tuple(dict.fromkeys(asked)))
        return detail("none")
    if matched:
        walk.tell(Stage.POLICY, f"{_named(matched)} denies it", policy_source(matched))
        return detail(matched)
    asked = tuple(source for name in sorted(rules.policies) for source in policy_source(name))
    walk.tell(Stage.POLICY, "no rule that denies matches", tuple(dict.fromkeys(asked)))
    return None


def effective(rules: RBAC, seen: Seen) -> str:
    """The first policy that matches, by name as Envoy sorts them; "" if none does."""
    for name in sorted(rules.policies):
        policy = rules.policies[name]
        if any(permits(each, seen) for each in policy.permissions) and any(
            is_(each, seen) for each in policy.principals
        ):
            return str(name)
    return ""


def detail(policy: str) -> str:
    return f"rbac_access_denied_matched_policy[{policy.replace(' ', '_')}]"


def permits(permission: Permission, seen: Seen) -> bool:
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
            return seen.headers.has(":path") and matchers.path(permission.url_path, seen.headers.value(":path"))
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


def is_(principal: Principal, seen: Seen) -> bool:
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
            return seen.headers.has(":path") and matchers.path(principal.url_path, seen.headers.value(":path"))
        case "metadata":
            return matchers.metadata(principal.metadata, seen.metadata)
    raise Unsure(f"a policy asks about {kind or 'nothing'}, which cannot be told here")


def _note(walk: Walk, config: http_rbac.RBAC | network_rbac.RBAC, seen: Seen) -> None:
    rules, prefix = config.shadow_rules, config.shadow_rules_stat_prefix
    owner = HTTP_FILTER if isinstance(config, http_rbac.RBAC) else NETWORK_FILTER
    matched = effective(rules, seen)
    notes: dict[str, Any] = seen.metadata.setdefault(owner, {})
    allowed = bool(matched) == (rules.action == RBAC.ALLOW) or rules.action == RBAC.LOG
    notes[f"{prefix}shadow_engine_result"] = "allowed" if allowed else "denied"
    if matched:
        notes[f"{prefix}shadow_effective_policy_id"] = matched
        walk.tell(Stage.POLICY, f"{_named(matched)} takes note of it", policy_source(matched))


def _named(rule: str) -> str:
    sources = policy_source(rule)
    return f"{sources[0].name} {sources[0].part}" if sources and sources[0].part else rule
