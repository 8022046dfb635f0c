"""Findings about places where an AuthorizationPolicy is not enforced: workloads without a proxy, ports that are not
intercepted, and callers in plaintext, which have no identity that a rule could match."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from weft.analyze.facts import Facts, Runner
from weft.analyze.finding import finding
from weft.analyze.policies import guarded_by
from weft.base.problem import Problem
from weft.model.authorization_policy import Action, AuthorizationPolicy, AuthorizationRule, Condition, Source
from weft.model.peer_authentication import TlsMode
from weft.model.service import Protocol

_IDENTITY_KEYS = ("source.principal", "source.namespace", "source.serviceAccount", "source.trustDomain")
_Place = tuple[str, str]  # the namespace and the name of a runner


def of_enforcement(facts: Facts) -> Iterator[Problem]:
    policies = [each for each in facts.policies if not (each.refused or each.dry_run or each.action is Action.AUDIT)]
    called = _called(facts) if policies else {}
    identified = _identified(policies, facts) if policies else set()
    for policy in policies:
        guarded = guarded_by(policy, facts)
        yield from _of_proxies(policy, guarded, called)
        yield from _of_plaintext(policy, guarded, called, identified, facts)
        yield from _of_disabled(policy, guarded, facts)


def _of_proxies(
    policy: AuthorizationPolicy, guarded: list[tuple[str, Runner]], called: dict[_Place, set[int]]
) -> Iterator[Problem]:
    bare, unseen = [], []
    for namespace, runner in guarded:
        ports = called.get((namespace, runner.name), set())
        if not runner.instance.proxied:
            bare += [runner.name] if policy.selector or ports else []
        elif not runner.instance.gateway:
            unseen += [f"{port} of {runner.name}" for port in sorted(ports) if not runner.instance.intercepts(port)]
    field = "spec.selector" if policy.selector else "spec"
    if bare:
        what = f"{_some(bare)} without a proxy: this policy is not enforced there"
        yield finding(
            "WFT0531", policy.origin, field, what, "remove `sidecar.istio.io/inject: false` from the Workload"
        )
    if unseen:
        what = f"calls to port {', '.join(unseen[:3])} are not intercepted: this policy is not enforced there"
        yield finding(
            "WFT0532",
            policy.origin,
            field,
            what,
            "the workload excludes the port from interception: see `excludeInboundPorts` and `includeInboundPorts`",
        )


def _of_plaintext(
    policy: AuthorizationPolicy,
    guarded: list[tuple[str, Runner]],
    called: dict[_Place, set[int]],
    identified: set[_Place],
    facts: Facts,
) -> Iterator[Problem]:
    """Findings about rules that callers in plaintext bypass. Such a caller has no certificate, and so no identity. A
    DENY rule that names callers does not match it, but an ALLOW rule for all callers with exceptions
    (`notPrincipals`) does. `guarded`: the runners (workloads or pods) that the policy selects, each with its
    namespace. `called`: the ports of each runner to which Services send calls. `identified`: runners whose policies
    deny all callers in plaintext anyway."""
    for number, rule in enumerate(policy.rules):
        if not (_excepts_callers(rule) if policy.action is Action.ALLOW else _names_callers(rule)):
            continue
        for namespace, runner in guarded:
            ports = called.get((namespace, runner.name), ())
            modes = facts.modes(namespace, runner.labels)
            if (namespace, runner.name) in identified or all(modes.at(port) is TlsMode.STRICT for port in ports):
                continue
            effect = "allows" if policy.action is Action.ALLOW else "does not match"
            what = (
                f"this rule {effect} callers in plaintext, which have no identity, and {runner.name} accepts plaintext"
            )
            hint = 'make the workload\'s PeerAuthentication STRICT, or add a DENY rule with notPrincipals: ["*"]'
            yield finding("WFT0533", policy.origin, f"spec.rules[{number}]", what, hint, line=rule.line)
            break


def _of_disabled(policy: AuthorizationPolicy, guarded: list[tuple[str, Runner]], facts: Facts) -> Iterator[Problem]:
    naming = [(number, rule) for number, rule in enumerate(policy.rules) if _names_callers(rule)]
    if not naming or not guarded or not all(_is_disabled(place, runner, facts) for place, runner in guarded):
        return
    for number, rule in naming:
        what = f"{guarded[0][1].name} has mutual TLS disabled, so no caller has an identity: this rule matches nothing"
        hint = "set the workload's PeerAuthentication to PERMISSIVE or STRICT"
        yield finding("WFT0519", policy.origin, f"spec.rules[{number}]", what, hint, line=rule.line)


def _is_disabled(namespace: str, runner: Runner, facts: Facts) -> bool:
    modes = facts.modes(namespace, runner.labels)
    return {modes.mode, *(mode for _, mode in modes.ports)} == {TlsMode.DISABLE}


def _called(facts: Facts) -> dict[_Place, set[int]]:
    """For each runner (a workload or pod), the port numbers on which Services send calls to it."""
    ports: dict[_Place, set[int]] = defaultdict(set)
    for service in facts.services:
        for runner in facts.selected(service.namespace, service.selector) if service.selector else ():
            for port in service.ports:
                if port.protocol is not Protocol.UDP and (number := runner.instance.port_for(port)):
                    ports[(service.namespace, runner.name)].add(number)
    return ports


def _identified(policies: list[AuthorizationPolicy], facts: Facts) -> set[_Place]:
    """The runners (by namespace and name) whose policies deny all callers in plaintext: one of the policies has a DENY
    rule that matches callers without an identity, or all ALLOW rules for the runner need an identity. `policies`: those
    that are enforced."""
    denying: set[_Place] = set()
    strangers: set[_Place] = set()
    allowing: set[_Place] = set()
    for policy in policies:
        places = {(namespace, runner.name) for namespace, runner in guarded_by(policy, facts)}
        if policy.action is Action.DENY and any(_denies_strangers(rule) for rule in policy.rules):
            denying |= places
        if policy.action is Action.ALLOW:
            allowing |= places
            if not all(_names_callers(rule) for rule in policy.rules):
                strangers |= places
    return denying | (allowing - strangers)


def _names_callers(rule: AuthorizationRule) -> bool:
    """Whether the rule matches only callers that have an identity."""
    named = bool(rule.sources) and all(
        source.principals or source.namespaces or source.service_accounts or source.trust_domains
        for source in rule.sources
    )
    return named or any(each.key in _IDENTITY_KEYS and each.values for each in rule.conditions)


def _excepts_callers(rule: AuthorizationRule) -> bool:
    """Whether the rule matches all but some callers, and therefore also callers without an identity."""
    excepted = any(_excepts(source) for source in rule.sources) or any(_excepted_by(each) for each in rule.conditions)
    return excepted and not _names_callers(rule)


def _excepts(source: Source) -> bool:
    excepted = (source.not_principals, source.not_namespaces, source.not_service_accounts, source.not_trust_domains)
    return any(excepted)


def _excepted_by(condition: Condition) -> bool:
    return condition.key in _IDENTITY_KEYS and bool(condition.not_values)


def _denies_strangers(rule: AuthorizationRule) -> bool:
    return not rule.operations and not rule.conditions and any("*" in each.not_principals for each in rule.sources)


def _some(names: list[str]) -> str:
    listed = ", ".join(names[:3]) + (" and others" if len(names) > 3 else "")
    return f"{listed} {'runs' if len(names) == 1 else 'run'}"
