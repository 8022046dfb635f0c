"""Debug page for `weft audit`: which workloads accept plaintext, and the findings of `weft analyze`, for one namespace
or all. The analysis runs on another thread, so that the event loop stays free."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from weft.analyze.facts import facts_of
from weft.analyze.findings import findings
from weft.files.problem_lines import with_lines
from weft.inspect.audit.report import LookedOver, plaintext

if TYPE_CHECKING:
    from weft.inspect.debug.pages import Page, Query
    from weft.mesh.mesh import Mesh
    from weft.model.settings import Settings
    from weft.model.value import Value


def page(mesh: Mesh, *, egress: bool = False) -> Page:
    """Return the page. `egress`: whether the pods of a mesh on one machine can reach hosts outside the mesh."""
    from weft.inspect.debug.pages import DebugResponse

    async def answer(query: Query) -> DebugResponse:
        objects = [values for _, values in mesh.values()]
        looked = await asyncio.to_thread(_look_over, mesh.settings, objects, query.get("namespace", ""), egress=egress)
        return DebugResponse(msgspec.json.encode(looked))

    return "Workloads that accept plaintext, and findings of weft analyze: namespace=NAMESPACE", answer


def _look_over(settings: Settings, objects: list[tuple[Value, ...]], namespace: str, *, egress: bool) -> LookedOver:
    facts = facts_of(settings, objects, egress=egress)
    section = plaintext(facts, namespace)
    section = msgspec.structs.replace(section, findings=with_lines(section.findings))
    return LookedOver(section, with_lines(findings(facts)))
