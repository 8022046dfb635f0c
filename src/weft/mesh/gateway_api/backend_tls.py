"""Converts BackendTLSPolicies into DestinationRules: the TLS settings of calls to a Service. Pure functions;
`attached.py` passes the objects.

Rule: the oldest policy for a port decides; a policy for the port itself comes before a policy for all ports. Without
valid CA certificates, calls to the Service fail.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from weft.model.destination_rule import ClientTls, ClientTlsMode, DestinationRule, TrafficPolicy
from weft.model.gateway_api import AuthorityBundle, BackendTls
from weft.model.names import ObjectKey
from weft.model.outcome import ACCEPTED, RESOLVED, PolicyOutcome, StatusCondition, not_accepted, unresolved
from weft.model.service import Service

_LAST = "9999-12-31T23:59:59Z"  # younger than any DestinationRule of a user


def called_over_tls(
    policies: Iterable[BackendTls], service: Service | None, bundles: Mapping[tuple[str, str], AuthorityBundle]
) -> tuple[tuple[DestinationRule, ...], tuple[PolicyOutcome, ...]]:
    whole: BackendTls | None = None
    ports: dict[int, BackendTls] = {}
    outcomes: list[PolicyOutcome] = []
    for policy in sorted(policies, key=lambda each: (each.created or "9999", each.namespace, each.name)):
        port = next((each for each in service.ports if each.name == policy.section), None) if service else None
        accepted = ACCEPTED
        named = f"{policy.target_kind} {policy.namespace}/{policy.service}"
        if service is None:
            accepted = not_accepted("TargetNotFound", f"{named} does not exist")
        elif policy.section and port is None:
            accepted = not_accepted("TargetNotFound", f"{named} has no port named {policy.section}")
        elif (port is not None and port.number in ports) or (port is None and whole is not None):
            accepted = not_accepted("Conflicted", "an older policy has the same target")
        elif port is not None:
            ports[port.number] = policy
        else:
            whole = policy
        resolved = _resolved(policy, bundles)
        if accepted.holds and not resolved.holds:
            accepted = not_accepted("NoValidCACertificate", resolved.message)
        key = ObjectKey("BackendTLSPolicy", policy.namespace, policy.name)
        outcomes.append(PolicyOutcome(key, policy.service, policy.host, (accepted, resolved), policy.origin))
    first = whole or next(iter(ports.values()), None)
    if first is None:
        return (), tuple(outcomes)
    policy_of_ports = tuple((number, TrafficPolicy(tls=_tls(each, bundles))) for number, each in sorted(ports.items()))
    rule = DestinationRule(
        name=first.name,
        namespace=first.namespace,
        host=first.host,
        policy=TrafficPolicy(tls=_tls(whole, bundles) if whole else None, ports=policy_of_ports),
        export_to=("*",),  # for all callers, whatever the default exportTo of DestinationRules is
        created=_LAST,
        origin=first.origin,
        attached=True,
    )
    return (rule,), tuple(outcomes)


def _resolved(policy: BackendTls, bundles: Mapping[tuple[str, str], AuthorityBundle]) -> StatusCondition:
    for kind in policy.other_kinds:
        what = f"CA certificates are not read from a {kind}, only from a ConfigMap with certificates in `ca.crt`"
        return unresolved("InvalidKind", what)
    for name in policy.bundles:
        if (policy.namespace, name) not in bundles:
            what = f"there is no ConfigMap {policy.namespace}/{name} with certificates in `ca.crt`"
            return unresolved("InvalidCACertificateRef", what)
    return RESOLVED


def _tls(policy: BackendTls, bundles: Mapping[tuple[str, str], AuthorityBundle]) -> ClientTls:
    if not _resolved(policy, bundles).holds:
        return ClientTls(ClientTlsMode.CLOSED)
    return ClientTls(
        ClientTlsMode.SIMPLE,
        server_name=policy.server_name,
        subject_alt_names=policy.subject_alt_names,
        of_gateway=True,
        roots="\n".join(bundles[(policy.namespace, name)].roots for name in policy.bundles),
    )
