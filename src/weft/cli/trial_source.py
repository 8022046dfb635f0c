"""What `weft test`, `weft diff` and `weft explain -f` try requests upon: files, files laid over what runs here or on a
cluster, and the RequestTests among them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from weft.cli.output import fail, say

if TYPE_CHECKING:
    from collections.abc import Iterable

    from weft.api.document import Document
    from weft.api.request_test import RequestCase
    from weft.base.problem import Problem
    from weft.control.recent import Seen
    from weft.control.stage import Stage
    from weft.model.names import ObjectKey
    from weft.model.value import Value


class Written(NamedTuple):
    documents: list[Document]  # of the mesh
    cases: list[RequestCase]
    problems: list[Problem]  # of the files, and of the tests


class Base(NamedTuple):
    """What is there before a change."""

    name: str
    documents: list[Document]
    cases: list[RequestCase]
    running: tuple[tuple[ObjectKey, tuple[Value, ...]], ...] | None = None  # a cluster's pods, and who answers there
    recent: tuple[Seen, ...] = ()


def read(paths: list[Path]) -> Written:
    """All that is given, together."""
    from weft.api.request_test import KIND, read_request_test
    from weft.cli.meshes import meshes_in

    found = Written([], [], [])
    for documents, problems, _ in meshes_in(paths):
        found.problems.extend(problems)
        for document in documents:
            if document.key.kind != KIND:
                found.documents.append(document)
                continue
            cases, wrong = read_request_test(document)
            found.cases.extend(cases)
            found.problems.extend(wrong)
    return found


def check(problems: Iterable[Problem]) -> None:
    """Errors end the command: what is refused would not be there, and every answer would be about something else."""
    from weft.base.problem import Severity

    errors = [problem for problem in problems if problem.severity is Severity.ERROR]
    for problem in errors:
        say(str(problem))
    if errors:
        count = f"{len(errors)} errors" if len(errors) > 1 else "an error"
        fail(f"{count} in what was given", "see them with their hints: weft validate PATH…")


def stage_of(documents: list[Document], running: Iterable[tuple[ObjectKey, tuple[Value, ...]]] | None = None) -> Stage:
    """Ends the command if anything in it would be refused."""
    from weft.cli.meshes import Admission
    from weft.control.stage import Stage
    from weft.control.written import written_mesh

    written = written_mesh(documents, admit=Admission(), running=running)
    check(written.problems)
    return Stage(written.mesh)


def laid_over(base: list[Document], change: list[Document]) -> list[Document]:
    return list({**{each.key: each for each in base}, **{each.key: each for each in change}}.values())


def base_of(
    against: Path | None,
    mesh: str | None,
    *,
    kubernetes: bool,
    kubeconfig: Path | None,
    context: str | None,
    system: str,
) -> Base:
    """A directory, the mesh that runs here, or a cluster."""
    from weft.cli.choose import choose_mesh, running_meshes
    from weft.cli.reach import control_place, refuse_two
    from weft.cli.recent_traffic import seen_here

    refuse_two(mesh, kubernetes=kubernetes, kubeconfig=kubeconfig, context=context)
    if against is not None:
        found = read([against])
        check(found.problems)
        return Base(str(against), found.documents, found.cases)
    if not (kubernetes or kubeconfig or context) and (place := control_place(mesh)) is not None:
        found = _served(place)
        return Base(f"weft control at {place}", found.documents, found.cases)
    if kubernetes or kubeconfig or context or (mesh is None and not running_meshes()):
        return _cluster(kubeconfig, context, system)
    from weft.local.client import fetch_status

    name = choose_mesh(mesh)
    status = fetch_status(name)
    found = read([Path(status.directory)])
    return Base(f"mesh {name}", found.documents, found.cases, recent=seen_here(status))


def _served(place: Path) -> Written:
    from weft.cli.reach_control import Control

    return read([Control(place).directory()])


def _cluster(kubeconfig: Path | None, context: str | None, system: str) -> Base:
    import asyncio

    from weft.cli.cluster import client
    from weft.cli.recent_traffic import seen_on_cluster
    from weft.kube.inventory import take

    async def run() -> Base:
        async with client(kubeconfig, context) as cluster:
            inventory = await take(cluster, root_namespace=system)
            recent = await seen_on_cluster(cluster)
            name = f"cluster {cluster.connection.server}"
            return Base(name, list(inventory.documents), [], inventory.values, recent)

    return asyncio.run(run())


def declared_and_seen(
    mesh: str | None, *, kubernetes: bool, kubeconfig: Path | None, context: str | None, system: str
) -> tuple[list[RequestCase], tuple[Seen, ...]]:
    """The requests by which the past of a mesh is judged: RequestTests beside its YAML, and recent traffic."""
    import asyncio

    from weft.cli.choose import choose_mesh, running_meshes
    from weft.cli.reach import control_place
    from weft.cli.recent_traffic import seen_here, seen_on_cluster

    if not (kubernetes or kubeconfig or context) and (place := control_place(mesh)) is not None:
        return _served(place).cases, ()
    if not (kubernetes or kubeconfig or context) and (mesh is not None or running_meshes()):
        from weft.local.client import fetch_status

        status = fetch_status(choose_mesh(mesh))
        return read([Path(status.directory)]).cases, seen_here(status)
    from weft.cli.cluster import client

    async def run() -> tuple[Seen, ...]:
        async with client(kubeconfig, context) as cluster:
            return await seen_on_cluster(cluster)

    return [], asyncio.run(run())
