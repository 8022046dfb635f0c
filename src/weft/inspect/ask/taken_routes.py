"""Find the routes of a VirtualService that an explained request takes, so that problems of its other routes can be
left out.

Rule: if the routes cannot be distinguished, every problem is kept. Routes are identified by their lines, which
objects from a cluster do not have.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from weft.base.problem import Problem, Where
from weft.explain.decision import Explanation
from weft.mesh.mesh import Mesh
from weft.model.names import ObjectKey
from weft.model.virtual_service import HttpRoute, L4Route, VirtualService

_FIELD = re.compile(r"spec\.(?P<kind>http|tls|tcp)\b(\[(?P<number>\d+)\](?P<match>\.match)?)?")


class TakenRoutes(msgspec.Struct, frozen=True):
    routing: VirtualService
    numbers: frozenset[int]  # positions of the taken `http` routes; not empty


def taken_routes(mesh: Mesh, explanation: Explanation) -> dict[str, TakenRoutes]:
    """Return the routes that the request of `explanation` takes, by the name of their VirtualService as in
    `Problem.where`. A VirtualService is left out if none of its routes is known to be taken."""
    lines: dict[ObjectKey, set[int]] = {}
    for source in {each for outcome in explanation.outcomes for step in outcome.steps for each in step.sources}:
        lines.setdefault(ObjectKey(source.kind, source.namespace, source.name), set()).add(source.line)
    taken: dict[str, TakenRoutes] = {}
    for key, there in lines.items():
        for routing in (value for value in mesh.get(key) if isinstance(value, VirtualService)):
            numbers = {number for number, route in enumerate(routing.http) if route.line and route.line in there}
            if numbers:
                taken[str(key)] = TakenRoutes(routing, frozenset(numbers))
    return taken


def is_of_another(problem: Problem, taken: Mapping[str, TakenRoutes]) -> bool:
    """Whether the problem is about a route that the request does not take. `taken`: the routes that it takes, as
    `taken_routes` returns them. False for problems that may explain why the request does not take the route: a match
    above the taken route that no request meets, or a route that a taken route shadows."""
    routes = taken.get(problem.where.object)
    about = _about(problem.where, routes.routing) if routes is not None else None
    if routes is None or about is None:
        return False
    kind, number, is_match = about
    if kind != "http":
        return True
    if number < 0 or number in routes.numbers or (is_match and number < max(routes.numbers)):
        return False
    return not any(f"http[{each}]" in problem.what for each in routes.numbers)


def _about(where: Where, routing: VirtualService) -> tuple[str, int, bool] | None:
    """The route that a problem is about, by the place `where` of the problem: the route's kind (`http`, `tls`,
    `tcp`), its position (-1: all routes of that kind), and whether the problem is about its match. None if the
    problem is about the whole object. If `where` has only a line and no field, the route is the last one that
    starts at or before that line."""
    if where.field:
        named = _FIELD.match(where.field)
        return (named["kind"], int(named["number"] or -1), named["match"] is not None) if named else None
    written: dict[str, tuple[HttpRoute | L4Route, ...]] = {
        "tcp": routing.tcp,
        "tls": routing.tls,
        "http": routing.http,
    }
    starts = {
        route.line: (kind, number, False)
        for kind, routes in written.items()
        for number, route in enumerate(routes)
        if 0 < route.line <= where.line
    }
    return starts[max(starts)] if starts else None
