"""The identities that the ALLOW policies of a workload may accept, so that the TLS handshake already rejects a caller
that no ALLOW rule names.

Envoy evaluates network RBAC when the caller's first bytes arrive; until then, any caller could read what a server that
speaks first sends. Where identities alone exclude a caller, the handshake rejects it. It is never stricter than the
policies.
"""

from __future__ import annotations

import re

from weft.model.authorization_policy import Action, AuthorizationRule, Condition, Source
from weft.translate.rbac import with_aliases
from weft.translate.tls import trust_domains
from weft.translate.view import GroupView

_BY_NAME = ("source.principal", "source.namespace", "source.serviceAccount")


def known_callers(view: GroupView) -> tuple[str, ...] | None:
    """Regular expressions for the identities that may be allowed on ports that are not HTTP; empty: no caller is. None
    if identities alone do not decide."""
    policies = [
        policy
        for policy in view.authorization
        if policy.action is Action.ALLOW and not policy.dry_run and not policy.targets
    ]
    if not policies:
        return None
    found: dict[str, None] = {}
    for rule in (rule for policy in policies for rule in policy.rules if not rule.needs_http):
        named = _named(rule, view)
        if named is None:
            return None
        found |= dict.fromkeys(named)
    return tuple(found)


def _named(rule: AuthorizationRule, view: GroupView) -> tuple[str, ...] | None:
    for condition in rule.conditions:
        if condition.key in _BY_NAME and condition.values:
            named = _names(_as_source(condition), view)
            if named is not None:
                return named
    each = [_names(source, view) for source in rule.sources]
    if not each or any(names is None for names in each):
        return None
    return tuple(name for names in each for name in names or ())


def _as_source(condition: Condition) -> Source:
    match condition.key:
        case "source.principal":
            return Source(principals=condition.values)
        case "source.namespace":
            return Source(namespaces=condition.values)
    return Source(service_accounts=condition.values)


def _names(source: Source, view: GroupView) -> tuple[str, ...] | None:
    """All fields of a source must match, so any one of them is a sufficient restriction."""
    settings = view.inbound_settings
    domains = "|".join(map(re.escape, trust_domains(settings)))
    if source.service_accounts:
        pairs = (account.partition("/") for account in source.service_accounts)
        return tuple(f"spiffe://(?:{domains})/ns/{re.escape(owner)}/sa/{re.escape(name)}" for owner, _, name in pairs)
    if source.namespaces:
        starred = ("[^/]*".join(map(re.escape, value.split("*"))) for value in source.namespaces)
        return tuple(f"spiffe://(?:{domains})/ns/{namespace}/.*" for namespace in starred)
    principals = with_aliases(source.principals, settings)
    if not principals or any(_is_vague(principal) for principal in principals):
        return None
    own = tuple(f"{domain}/" for domain in trust_domains(settings))
    return tuple(_expression(principal) for principal in principals if principal.startswith(own))


def _is_vague(principal: str) -> bool:
    """Whether it could match another trust domain, which the mesh never accepts."""
    return principal.startswith("*") or (principal.endswith("*") and "/" not in principal)


def _expression(principal: str) -> str:
    if principal.endswith("*"):
        return f"spiffe://{re.escape(principal[:-1])}.*"
    return f"spiffe://{re.escape(principal)}"
