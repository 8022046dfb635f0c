"""Add files and lines to the objects that an explanation names. Resources name the objects that they come from,
mostly without file and line, and they do not name the Sidecar or RequestAuthentication that decided a step. This
module finds both in the mesh."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from weft.explain.decision import STOPPED, DecisionStage, Explanation, ObjectSource, Outcome, Step
from weft.inspect.reasons.part import Ground, placed, sources
from weft.inspect.reasons.routes import UNCLAIMED
from weft.mesh.mesh import Mesh
from weft.model.group import Group
from weft.model.request_authentication import RequestAuthentication
from weft.translate import names

_UNKNOWN = frozenset({*UNCLAIMED, names.PASSTHROUGH, names.BLACK_HOLE})


def sourced(mesh: Mesh, group: Callable[[str], Group | None], explanation: Explanation) -> Explanation:
    """Return the explanation with the files and lines of its objects, and with the deciding objects that no resource
    names. `group`: a function that returns the group of a pod's proxy, given the pod's name; None for a pod without a
    proxy."""
    known: dict[Step, Step] = {}

    def step(each: Step) -> Step:
        if each not in known:
            every = (*each.sources, *_more(mesh, group, each))
            known[each] = replace(each, sources=tuple(dict.fromkeys(placed(mesh, source) for source in every)))
        return known[each]

    def outcome(each: Outcome) -> Outcome:
        steps = tuple(map(step, each.steps))
        if each.verdict.kind not in STOPPED or not steps:
            return replace(each, steps=steps)
        return replace(each, steps=steps, verdict=replace(each.verdict, sources=steps[-1].sources))

    return replace(explanation, outcomes=tuple(map(outcome, explanation.outcomes)))


def _more(mesh: Mesh, group: Callable[[str], Group | None], step: Step) -> tuple[ObjectSource, ...]:
    """The objects that decided a step, but that no resource names: Sidecars, RequestAuthentications, mesh settings."""
    needed = step.about in _UNKNOWN or step.stage in (DecisionStage.TOKEN, DecisionStage.INBOUND)
    owner = group(step.proxy) if needed else None
    if owner is None:
        return ()
    if step.stage is DecisionStage.TOKEN:
        return _authentications(mesh, owner, step.about)
    ground = Ground(mesh, owner)
    if step.stage is DecisionStage.INBOUND:
        return sources(ground.sidecar.origin, part="ingress") if ground.sidecar and ground.sidecar.ingress else ()
    return (*ground.outbound()[0], *ground.scope()[0])


def _authentications(mesh: Mesh, group: Group, issuer: str) -> tuple[ObjectSource, ...]:
    """The RequestAuthentications that apply to the group and have a rule for the issuer, or for any issuer. If there is
    none, all RequestAuthentications that apply to the group."""
    policies = mesh.policies(RequestAuthentication, group)
    believing = [each for each in policies if any(rule.issuer in (issuer, "") for rule in each.rules)]
    return sources(*(each.origin for each in believing or policies))
