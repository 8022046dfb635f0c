"""Runs all checks on a mesh. A finding is about an object that is valid by itself, but does not have the effect that
its author wanted. False alarms are worse than missing findings: configuration that may be intended is not
reported, or only at severity INFO, which commands show on request."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from weft.analyze.actions import of_actions
from weft.analyze.addresses import of_addresses
from weft.analyze.attachments import of_attachments
from weft.analyze.callers import of_callers
from weft.analyze.claims import of_claims
from weft.analyze.conditions import of_conditions
from weft.analyze.credentials import of_credentials
from weft.analyze.enforcement import of_enforcement
from weft.analyze.exports import of_exports
from weft.analyze.external_hosts import of_external_hosts
from weft.analyze.facts import Facts
from weft.analyze.gateway_routes import of_gateway_routes
from weft.analyze.gateways import of_gateways
from weft.analyze.namespaces import of_namespaces
from weft.analyze.nested_tls import of_nested_tls
from weft.analyze.policies import of_policies
from weft.analyze.protocols import of_protocols
from weft.analyze.routes import of_routes
from weft.analyze.rule_levels import of_rule_levels
from weft.analyze.rules import of_rules
from weft.analyze.services import of_services
from weft.analyze.shadows import of_shadows
from weft.analyze.sidecars import of_sidecars
from weft.analyze.telemetries import of_telemetries
from weft.analyze.tokens import of_tokens
from weft.analyze.transport import of_transport
from weft.analyze.tunnels import of_tunnels
from weft.base.problem import Problem, Severity
from weft.model.names import ObjectKey

# Codes of findings that exist because of the effect of another object: that object takes precedence, has the same host
# or port, or denies the callers. A rejected object has no such effect.
OF_RIVALS = frozenset(
    f"WFT{number}"
    for number in (
        *("0108", "0204", "0207", "0210", "0211", "0218", "0224", "0304", "0308", "0310", "0312", "0313"),
        *("0321", "0404", "0405", "0501", "0519", "0604", "0702", "0703", "0709", "0904"),
    )
)


def findings(
    facts: Facts,
    refused: Collection[ObjectKey] = (),
    *,
    in_force: Facts | None = None,
    least: Severity = Severity.WARNING,
) -> tuple[Problem, ...]:
    """Return all findings about a mesh. `refused`: rejected objects; they get no findings, since their errors have
    to be fixed first. `in_force`: the facts without the rejected objects, if there are any. `least`: findings
    below this severity are left out."""
    silent = {str(key) for key in refused}
    problems = _found(facts) if in_force is None else settled(_found(facts), _found(in_force))
    ours = (
        problem
        for problem in problems
        if problem.where.object not in silent and problem.severity.weight >= least.weight
    )
    return tuple(sorted(ours, key=lambda problem: (problem.where.file, problem.where.line, str(problem))))


def settled(meant: Collection[Problem], in_force: Iterable[Problem]) -> tuple[Problem, ...]:
    """Return the findings to report when some objects are rejected. `meant`: the findings computed with the rejected
    objects. `in_force`: the findings computed without them.

    Most findings are taken from `meant`, so that a reference to a rejected object is not reported as missing. Findings
    that the effect of another object causes (their codes are in `OF_RIVALS`) are taken from `in_force`, because a
    rejected object has no effect. Such a finding is reported only if `meant` has a finding with the same place and
    code.
    """
    known = {(problem.where, problem.code) for problem in meant}
    return (
        *(problem for problem in meant if problem.code not in OF_RIVALS),
        *(problem for problem in in_force if problem.code in OF_RIVALS and (problem.where, problem.code) in known),
    )


def _found(facts: Facts) -> tuple[Problem, ...]:
    return (
        *of_services(facts),
        *of_protocols(facts),
        *of_claims(facts),
        *of_exports(facts),
        *of_external_hosts(facts),
        *of_namespaces(facts),
        *of_gateways(facts),
        *of_attachments(facts),
        *of_rules(facts),
        *of_rule_levels(facts),
        *of_credentials(facts),
        *of_nested_tls(facts),
        *of_tunnels(facts),
        *of_addresses(facts),
        *of_routes(facts),
        *of_gateway_routes(facts),
        *of_shadows(facts),
        *of_conditions(facts),
        *of_actions(facts),
        *of_sidecars(facts),
        *of_policies(facts),
        *of_callers(facts),
        *of_tokens(facts),
        *of_enforcement(facts),
        *of_telemetries(facts),
        *of_transport(facts),
    )
