"""Findings about AuthorizationPolicies that select no workload, that call an authorizer that does not exist, or that
match more or less than intended on a port that does not carry HTTP."""

from __future__ import annotations

from collections.abc import Iterator

from weft.analyze.facts import Facts, Runner
from weft.analyze.finding import finding
from weft.analyze.ports import Ports
from weft.analyze.unmatched_selectors import selects_nothing
from weft.base.problem import Problem
from weft.base.suggest import did_you_mean
from weft.model.authorization_policy import Action, AuthorizationPolicy, AuthorizationRule
from weft.model.extension_provider import Authorizer

_MOST_PORTS = 3  # named in one finding at most


def of_policies(facts: Facts) -> Iterator[Problem]:
    ports = Ports(facts)
    for policy in facts.policies:
        if policy.refused:
            continue
        yield from selects_nothing("WFT0511", policy, facts, "the policy has no effect")
        yield from _of_provider(policy, facts)
        guarded = guarded_by(policy, facts)
        yield from _of_numbers(policy, guarded, ports)
        if not policy.dry_run:
            places = [(namespace, runner.name) for namespace, runner in guarded]
            others = sorted({port for place in places for port in ports.tcp.get(place, ())})
            http = {port for place in places for port in ports.http.get(place, ())}
            yield from _of_ports(policy, others, http, facts)


def guarded_by(policy: AuthorizationPolicy, facts: Facts) -> list[tuple[str, Runner]]:
    """The runners (workloads or pods) that a policy selects, each as its namespace and the runner."""
    return facts.chosen(policy.namespace, policy.selector, policy.targets)


def _of_provider(policy: AuthorizationPolicy, facts: Facts) -> Iterator[Problem]:
    if policy.action is not Action.CUSTOM:
        return
    authorizers = {each.name: each for each in facts.settings.extension_providers if isinstance(each, Authorizer)}
    authorizer = authorizers.get(policy.provider)
    if authorizer is None:
        what = f"there is no authorizer `{policy.provider}`: requests that this policy matches are denied"
        hint = did_you_mean(policy.provider, authorizers) or "add it to `extensionProviders` in the MeshConfig"
        yield finding("WFT0512", policy.origin, "spec.provider.name", what, hint)
        return
    if not (authorizer.host and authorizer.port):  # reported as an error of the settings
        return
    services = [
        service for service in facts.by_host.get(authorizer.host, ()) if authorizer.namespace in ("", service.namespace)
    ]
    if not any(port.number == authorizer.port for service in services for port in service.ports):
        missing = f"port {authorizer.port} of {authorizer.host}" if services else f"the service {authorizer.host}"
        what = (
            f"the authorizer `{authorizer.name}` is {missing}, which does not exist: "
            "requests that this policy matches are denied"
        )
        yield finding("WFT0513", policy.origin, "spec.provider.name", what)


def _of_numbers(policy: AuthorizationPolicy, guarded: list[tuple[str, Runner]], ports: Ports) -> Iterator[Problem]:
    """Findings about port numbers in rules: a rule names a Service's port instead of the workload's own, or a port that
    no workload declares. `guarded`: the runners (workloads or pods) that the policy selects, each with its
    namespace."""
    declared = ports.declared(guarded) if any(rule.operations or rule.conditions for rule in policy.rules) else ()
    for number, rule in enumerate(policy.rules):
        named = {port for operation in rule.operations for port in (*operation.ports, *operation.not_ports)}
        for condition in rule.conditions:
            if condition.key == "destination.port":
                named |= {int(port) for port in (*condition.values, *condition.not_values)}
        for port in sorted(named):
            if meant := ports.meant(port, guarded):
                what = (
                    f"{port} is the Service's port, and the workload listens on port {meant}: no call arrives at {port}"
                )
                yield finding("WFT0514", policy.origin, f"spec.rules[{number}]", what, f'use "{meant}"', line=rule.line)
            elif declared and port not in declared:
                what = f"no workload that this policy selects declares port {port}: the rule matches nothing there"
                hint = f"declared: {', '.join(map(str, declared[:12]))}"
                yield finding("WFT0518", policy.origin, f"spec.rules[{number}]", what, hint, line=rule.line)


def _of_ports(policy: AuthorizationPolicy, ports: list[int], http: set[int], facts: Facts) -> Iterator[Problem]:
    """Findings about rules with HTTP conditions, or with an authorizer for HTTP only, on ports that do not carry HTTP.
    `ports`: the ports of the selected workloads that carry another protocol. `http`: the ports of these workloads that
    carry HTTP. A port can be in both."""
    http_only = policy.action is Action.CUSTOM and not _asks_about_connections(policy, facts)
    for number, rule in enumerate(policy.rules):
        met = [port for port in ports if _may_be_on(rule, port)]
        if not met or not (rule.needs_http or http_only):
            continue
        listed = ", ".join(str(port) for port in met[:_MOST_PORTS]) + (" and others" if len(met) > _MOST_PORTS else "")
        plural = f"port {listed} does" if len(met) == 1 else f"ports {listed} do"
        if policy.action is Action.ALLOW:
            code, outcome = "WFT0515", "so this rule allows no connection there"
        elif http_only:
            code = "WFT0517"
            outcome = "and this authorizer decides about HTTP only, so every connection that the rule matches is denied"
        else:
            verb = {Action.DENY: "denies", Action.AUDIT: "audits", Action.CUSTOM: "calls the authorizer for"}[
                policy.action
            ]
            code, outcome = (
                "WFT0516",
                f"so this rule ignores its HTTP conditions and {verb} every connection that its other conditions match",
            )
        alone = "not carry HTTP" if http.isdisjoint(met) else "not carry HTTP for every caller"
        what = f"{plural} {alone}, {outcome}"
        example = min(http.difference(ports), default=8080)
        hint = f'to limit the rule to HTTP, add `ports` to its operations, such as ports: ["{example}"]'
        if policy.action is Action.ALLOW:
            hint = "allow callers of that port by a rule without hosts, paths, methods, headers or tokens"
        yield finding(code, policy.origin, f"spec.rules[{number}]", what, hint, line=rule.line)


def _may_be_on(rule: AuthorizationRule, port: int) -> bool:
    """Whether the rule can match requests to this port: it has no operations, or one of them allows the port by its
    `ports` and `notPorts`."""
    return not rule.operations or any(
        (not operation.ports or port in operation.ports) and port not in operation.not_ports
        for operation in rule.operations
    )


def _asks_about_connections(policy: AuthorizationPolicy, facts: Facts) -> bool:
    return any(
        isinstance(each, Authorizer) and each.name == policy.provider and each.grpc
        for each in facts.settings.extension_providers
    )
