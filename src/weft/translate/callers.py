"""Computes the identities that the ALLOW policies of a workload may accept, so that the TLS handshake already rejects a
caller whose identity no ALLOW rule can match.

Envoy evaluates network RBAC only when the caller's first bytes arrive. Until then, any caller could read the first
bytes of a server-first protocol. So the handshake rejects callers that their identity alone excludes. The handshake is
never stricter than the policies.
"""

from __future__ import annotations

import re

from weft.model.authorization_policy import Action, AuthorizationRule, Condition, Source
from weft.model.settings import Settings
from weft.translate.rbac import with_aliases, with_domain_aliases
from weft.translate.tls import trust_domains
from weft.translate.view import GroupView

_BY_NAME = ("source.principal", "source.namespace", "source.serviceAccount", "source.trustDomain")


def known_callers(view: GroupView) -> tuple[str, ...] | None:
    """Return regular expressions for the identities that may be allowed on ports that are not HTTP. Empty: no caller is
    allowed. None: identities alone do not decide, so any caller may be allowed."""
    policies = [
        policy
        for policy in view.authorization
        if policy.action is Action.ALLOW and not policy.dry_run and not policy.targets
    ]
    if not policies:
        return None
    identities: dict[str, None] = {}
    for rule in (rule for policy in policies for rule in policy.rules if not rule.needs_http):
        named = _named(rule, view)
        if named is None:
            return None
        identities |= dict.fromkeys(named)
    return tuple(identities)


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
        case "source.trustDomain":
            return Source(trust_domains=condition.values)
    return Source(service_accounts=condition.values)


def _names(source: Source, view: GroupView) -> tuple[str, ...] | None:
    """Return regular expressions for the identities that can match a source; None if the source does not restrict
    identities. All fields of a source must match, so one field is enough for a restriction."""
    settings = view.inbound_settings
    accepted = _accepted_domains(source, settings)
    if not accepted:
        return ()
    domains = "|".join(map(re.escape, accepted))
    if source.service_accounts:
        pairs = (account.partition("/") for account in source.service_accounts)
        return tuple(f"spiffe://(?:{domains})/ns/{re.escape(owner)}/sa/{re.escape(name)}" for owner, _, name in pairs)
    if source.namespaces:
        starred = ("[^/]*".join(map(re.escape, value.split("*"))) for value in source.namespaces)
        return tuple(f"spiffe://(?:{domains})/ns/{namespace}/.*" for namespace in starred)
    principals = with_aliases(source.principals, settings)
    if not principals or any(_is_vague(principal) for principal in principals):
        return (f"spiffe://(?:{domains})/.*",) if source.trust_domains else None
    own = tuple(f"{domain}/" for domain in accepted)
    return tuple(_expression(principal) for principal in principals if principal.startswith(own))


def _accepted_domains(source: Source, settings: Settings) -> tuple[str, ...]:
    """Return those trust domains of the mesh that the `trustDomains` of a source match; all trust domains of the mesh
    if the source has no `trustDomains`."""
    own = trust_domains(settings)
    if not source.trust_domains:
        return own
    patterns = [
        "[^/]*".join(map(re.escape, each.split("*"))) for each in with_domain_aliases(source.trust_domains, settings)
    ]
    return tuple(domain for domain in own if any(re.fullmatch(pattern, domain) for pattern in patterns))


def _is_vague(principal: str) -> bool:
    """Whether a principal with a wildcard may match identities of any trust domain, as `*/sa/web` does. It then does
    not restrict the handshake. This is safe, because the mesh accepts no identity of a foreign trust domain."""
    return principal.startswith("*") or (principal.endswith("*") and "/" not in principal)


def _expression(principal: str) -> str:
    if principal.endswith("*"):
        return f"spiffe://{re.escape(principal[:-1])}.*"
    return f"spiffe://{re.escape(principal)}"
