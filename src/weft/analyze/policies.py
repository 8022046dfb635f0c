"""AuthorizationPolicies that are for nobody, that ask somebody who is not there, and those that mean something else on
a port that does not carry HTTP."""

from __future__ import annotations

from collections.abc import Iterator

from weft.analyze.facts import Facts, Runner
from weft.analyze.finding import finding
from weft.analyze.nobody import of_nobody
from weft.analyze.ports import Ports
from weft.base.problem import Problem
from weft.base.suggest import did_you_mean
from weft.model.authorization_policy import Action, AuthorizationPolicy, AuthorizationRule
from weft.model.extension_provider import Authorizer

_MOST_PORTS = 3  # named in one finding


def of_policies(facts: Facts) -> Iterator[Problem]:
    ports = Ports(facts)
    for policy in facts.policies:
        if policy.refused:
            continue
        yield from of_nobody("WFT0511", policy, facts, "the policy guards nobody")
        yield from _of_provider(policy, facts)
        guarded = guarded_by(policy, facts)
        yield from _of_numbers(policy, guarded, ports)
        if not policy.dry_run:
            places = [(namespace, runner.name) for namespace, runner in guarded]
            others = sorted({port for place in places for port in ports.tcp.get(place, ())})
            http = {port for place in places for port in ports.http.get(place, ())}
            yield from _of_ports(policy, others, http, facts)


def guarded_by(policy: AuthorizationPolicy, facts: Facts) -> list[tuple[str, Runner]]:
    """Whom a policy selects, with their namespaces."""
    return facts.chosen(policy.namespace, policy.selector, policy.targets)


def _of_provider(policy: AuthorizationPolicy, facts: Facts) -> Iterator[Problem]:
    if policy.action is not Action.CUSTOM:
        return
    known = {each.name: each for each in facts.settings.extension_providers if isinstance(each, Authorizer)}
    found = known.get(policy.provider)
    if found is None:
        what = f"there is no authorizer `{policy.provider}`: what it would be asked about is denied"
        hint = did_you_mean(policy.provider, known) or "add it to `extensionProviders` in the mesh's settings"
        yield finding("WFT0512", policy.origin, "spec.provider.name", what, hint)
        return
    if not (found.host and found.port):  # then the settings have an error, and that is said
        return
    services = [service for service in facts.by_host.get(found.host, ()) if found.namespace in ("", service.namespace)]
    if not any(port.number == found.port for service in services for port in service.ports):
        missing = f"port {found.port} of {found.host}" if services else f"the service {found.host}"
        what = (
            f"the authorizer `{found.name}` is {missing}, which does not exist: what it would be asked about is denied"
        )
        yield finding("WFT0513", policy.origin, "spec.provider.name", what)


def _of_numbers(policy: AuthorizationPolicy, guarded: list[tuple[str, Runner]], ports: Ports) -> Iterator[Problem]:
    """A Service's port where the workload's own is asked for, or one that nobody has."""
    declared = ports.declared(guarded) if any(rule.operations or rule.conditions for rule in policy.rules) else ()
    for number, rule in enumerate(policy.rules):
        named = {port for operation in rule.operations for port in (*operation.ports, *operation.not_ports)}
        for condition in rule.conditions:
            if condition.key == "destination.port":
                named |= {int(port) for port in (*condition.values, *condition.not_values)}
        for port in sorted(named):
            if meant := ports.meant(port, guarded):
                what = (
                    f"{port} is a port of the service, and the workload's own is {meant}: nothing is called at {port}"
                )
                yield finding(
                    "WFT0514", policy.origin, f"spec.rules[{number}]", what, f'write "{meant}"', line=rule.line
                )
            elif declared and port not in declared:
                what = f"no workload that this guards declares a port {port}: the rule matches nothing there"
                hint = f"known here: {', '.join(map(str, declared[:12]))}"
                yield finding("WFT0518", policy.origin, f"spec.rules[{number}]", what, hint, line=rule.line)


def _of_ports(policy: AuthorizationPolicy, ports: list[int], http: set[int], facts: Facts) -> Iterator[Problem]:
    """A rule that asks for what only HTTP has, for workloads with ports that carry something else."""
    http_only = policy.action is Action.CUSTOM and not _asks_about_connections(policy, facts)
    for number, rule in enumerate(policy.rules):
        met = [port for port in ports if _may_be_on(rule, port)]
        if not met or not (rule.needs_http or http_only):
            continue
        listed = ", ".join(str(port) for port in met[:_MOST_PORTS]) + (" and others" if len(met) > _MOST_PORTS else "")
        plural = f"port {listed} does" if len(met) == 1 else f"ports {listed} do"
        if policy.action is Action.ALLOW:
            code, outcome = "WFT0515", "so this rule lets nobody in there"
        elif http_only:
            code = "WFT0517"
            outcome = "and this authorizer decides about HTTP only, so every connection that the rule matches is denied"
        else:
            verb = {Action.DENY: "denies", Action.AUDIT: "marks", Action.CUSTOM: "asks about"}[policy.action]
            code, outcome = "WFT0516", f"so this rule {verb} every connection that the rest of it matches"
        alone = "not carry HTTP" if http.isdisjoint(met) else "not carry HTTP for every caller"
        what = f"{plural} {alone}, {outcome}"
        hint = f'add `ports` to its operations, such as ports: ["{min(http.difference(ports), default=8080)}"]'
        if policy.action is Action.ALLOW:
            hint = "let callers of that port in by a rule without hosts, paths, methods, headers or tokens"
        yield finding(code, policy.origin, f"spec.rules[{number}]", what, hint, line=rule.line)


def _may_be_on(rule: AuthorizationRule, port: int) -> bool:
    """Whether some operation of the rule can be one on this port."""
    return not rule.operations or any(
        (not operation.ports or port in operation.ports) and port not in operation.not_ports
        for operation in rule.operations
    )


def _asks_about_connections(policy: AuthorizationPolicy, facts: Facts) -> bool:
    return any(
        isinstance(each, Authorizer) and each.name == policy.provider and each.grpc
        for each in facts.settings.extension_providers
    )
