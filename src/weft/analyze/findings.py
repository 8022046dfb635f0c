"""Everything in a mesh that does not fit together: each object by itself is well, and yet it does not do what its
author wanted. False alarms are worse than silence here: what may be meant is not said, or only to those who ask."""

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

# What is wrong with an object because of what another one does: decides in its place, has its host or port, keeps its
# callers out. A refused object does nothing of that.
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
    """`refused`: objects with errors of their own. Those are to be mended first; what else they are is a guess.
    `in_force`: the facts without those that are only meant. `least`: how bad it must be to be told."""
    silent = {str(key) for key in refused}
    found = _found(facts) if in_force is None else settled(_found(facts), _found(in_force))
    ours = (
        problem for problem in found if problem.where.object not in silent and problem.severity.weight >= least.weight
    )
    return tuple(sorted(ours, key=lambda problem: (problem.where.file, problem.where.line, str(problem))))


def settled(meant: Collection[Problem], in_force: Iterable[Problem]) -> tuple[Problem, ...]:
    """What is wrong where some objects are refused. Who refers to one is told what is wrong with that as it is meant;
    but what another object would do is told only if that is in force, and in the words of what is."""
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
