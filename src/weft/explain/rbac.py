"""Evaluates Envoy's RBAC filters: rules that allow, deny or log, and shadow rules, which only set metadata."""

from __future__ import annotations

from typing import Any

from envoy.config.rbac.v3.rbac_pb2 import RBAC
from envoy.extensions.filters.http.rbac.v3 import rbac_pb2 as http_rbac
from envoy.extensions.filters.network.rbac.v3 import rbac_pb2 as network_rbac

from weft.explain.decision import DecisionStage, policy_source
from weft.explain.rule import GuardInput, is_, permits
from weft.explain.unmet import unmet
from weft.explain.walk import Walk

_MOST_LISTED = 4  # rules whose unmet conditions a message lists
HTTP_FILTER, NETWORK_FILTER = "envoy.filters.http.rbac", "envoy.filters.network.rbac"


def denied(walk: Walk, config: http_rbac.RBAC | network_rbac.RBAC, seen: GuardInput) -> str | None:
    """The response_code_details with which the RBAC filter `config` denies the request or connection `seen`; None if
    the filter does not deny it. Adds the results of shadow rules to the metadata of `seen`."""
    if config.HasField("shadow_rules"):
        _note(walk, config, seen)
    if not config.HasField("rules"):
        return None
    rules = config.rules
    matched = effective(rules, seen)
    if rules.action == RBAC.LOG:
        if matched:
            what = f"{_named(matched)} marks the call for the access log"
            walk.tell(DecisionStage.POLICY, what, policy_source(matched))
        return None
    if rules.action == RBAC.ALLOW:
        if matched:
            walk.tell(DecisionStage.POLICY, f"{_named(matched)} allows the call", policy_source(matched))
            return None
        sources = tuple(source for name in sorted(rules.policies) for source in policy_source(name))
        what = f"no ALLOW rule matches, so the call is denied{unmet_of(rules, seen)}"
        walk.tell(DecisionStage.POLICY, what, tuple(dict.fromkeys(sources)))
        return detail("none")
    if matched:
        walk.tell(DecisionStage.POLICY, f"{_named(matched)} denies the call", policy_source(matched))
        return detail(matched)
    sources = tuple(source for name in sorted(rules.policies) for source in policy_source(name))
    if sources:  # without sources, it is the built-in rule of every gateway, which no policy declares
        walk.tell(DecisionStage.POLICY, "no DENY rule matches", tuple(dict.fromkeys(sources)))
    return None


def effective(rules: RBAC, seen: GuardInput) -> str:
    """The name of the first policy in `rules` that matches the request or connection `seen`, in Envoy's order (by
    name); "" if none matches."""
    for name in sorted(rules.policies):
        policy = rules.policies[name]
        if any(permits(each, seen) for each in policy.permissions) and any(
            is_(each, seen) for each in policy.principals
        ):
            return str(name)
    return ""


def unmet_of(rules: RBAC, seen: GuardInput) -> str:
    """The conditions of each policy in `rules` that the request (`seen`) does not meet, as text in parentheses; "" if
    none can be described."""
    conditions = [(name, unmet(rules.policies[name], seen)) for name in sorted(rules.policies)]
    reasons = [f"{_named(name)}: {why}" for name, why in conditions if why]
    if len(reasons) > _MOST_LISTED:
        reasons = [*reasons[:_MOST_LISTED], f"and {len(reasons) - _MOST_LISTED} more"]
    return f" ({'; '.join(reasons)})" if reasons else ""


def detail(policy: str) -> str:
    return f"rbac_access_denied_matched_policy[{policy.replace(' ', '_')}]"


def _note(walk: Walk, config: http_rbac.RBAC | network_rbac.RBAC, seen: GuardInput) -> None:
    rules, prefix = config.shadow_rules, config.shadow_rules_stat_prefix
    owner = HTTP_FILTER if isinstance(config, http_rbac.RBAC) else NETWORK_FILTER
    matched = effective(rules, seen)
    notes: dict[str, Any] = seen.metadata.setdefault(owner, {})
    allowed = bool(matched) == (rules.action == RBAC.ALLOW) or rules.action == RBAC.LOG
    notes[f"{prefix}shadow_engine_result"] = "allowed" if allowed else "denied"
    if matched:
        notes[f"{prefix}shadow_effective_policy_id"] = matched
        what = f"{_named(matched)} matches the call as a shadow rule, which is not enforced"
        walk.tell(DecisionStage.POLICY, what, policy_source(matched))


def _named(rule: str) -> str:
    sources = policy_source(rule)
    return f"{sources[0].name} {sources[0].part}" if sources and sources[0].part else rule
