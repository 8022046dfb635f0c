"""Provides the mesh on which `weft test`, `weft diff` and `weft explain -f` try requests: from files, or from files
applied over a running mesh on this machine or on a cluster; and the RequestTests among the files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from weft.cli.print.output import fail, say
from weft.cli.reach.connect import refuse_two, which

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from weft.api.document import Document
    from weft.api.parse_cache import Reading
    from weft.api.request_test import RequestCase
    from weft.base.problem import Problem
    from weft.inspect.compare.recent_traffic import SeenRequest
    from weft.inspect.stage import Stage
    from weft.model.names import ObjectKey
    from weft.model.value import Value


class GivenFiles(NamedTuple):
    documents: list[Document]  # objects of the mesh, without RequestTests
    cases: list[RequestCase]
    problems: list[Problem]  # problems of the files and of the RequestTests


class Base(NamedTuple):
    """The mesh before a change: a name for messages, its objects (`documents`), its RequestTests (`cases`), and
    requests of recent traffic (`recent`). `running`: the pods and EndpointSlices of a cluster; None for a mesh on this
    machine or in files. `problems`: those of its files, and of objects that were replaced by their last valid version.
    `runs`: whether it is a running mesh, which uses the last valid version of an object with an error."""

    name: str
    documents: list[Document]
    cases: list[RequestCase]
    running: tuple[tuple[ObjectKey, tuple[Value, ...]], ...] | None = None  # a cluster's pods and EndpointSlices
    recent: tuple[SeenRequest, ...] = ()
    problems: tuple[Problem, ...] = ()  # of its files, and of objects replaced by their last valid version
    runs: bool = False


def read(paths: Sequence[Path]) -> GivenFiles:
    """Read all `paths` as one mesh, and the RequestTests among its files."""
    from weft.api.request_test import KIND, read_request_test
    from weft.cli.read.mesh_files import meshes_in

    given = GivenFiles([], [], [])
    for documents, problems, _ in meshes_in(paths):
        given.problems.extend(problems)
        for document in documents:
            if document.key.kind != KIND:
                given.documents.append(document)
                continue
            cases, wrong = read_request_test(document)
            given.cases.extend(cases)
            given.problems.extend(wrong)
    return given


def check(problems: Iterable[Problem]) -> None:
    """Print the errors among `problems`, and end the command if there are any: the objects with errors would be
    missing from the mesh, and the result would be wrong."""
    errors = list(dict.fromkeys(map(coded, filter(is_error, problems))))
    for problem in errors:
        say(str(problem))
    if errors:
        count = f"{len(errors)} errors" if len(errors) > 1 else "an error"
        fail(f"{count} in the given files", "fix the problems above, and try again")


def warn(problems: Iterable[Problem]) -> None:
    """Print the errors among `problems` and continue. As in a control plane, rejected objects are left out and the
    others are used."""
    errors = list(dict.fromkeys(map(coded, filter(is_error, problems))))
    for problem in errors:
        say(str(problem))
    if errors:
        count = f"{len(errors)} errors" if len(errors) > 1 else "an error"
        say(
            f"warning: {count} in the given files: rejected objects are left out, and rejected policies deny everything"
        )


def warn_of_base(name: str, problems: Iterable[Problem], *, runs: bool) -> None:
    """Print one warning for all errors among `problems` of the base mesh `name`, to which the given files are
    applied. `runs`: whether it is a running mesh, which uses the last valid version of an object with an error."""
    errors = sorted({coded(each) for each in problems if is_error(each)}, key=lambda each: (str(each.where), each.what))
    if errors:
        count = f"{len(errors)} errors" if len(errors) > 1 else "an error"
        counts = (
            "the last valid versions of objects with errors are used" if runs else "objects with errors are left out"
        )
        say(f"warning: {name} has {count}; {counts}; the first error: {errors[0]}")


def stage_of(documents: list[Document], read: Reading | None = None) -> Stage:
    """Return the mesh that the documents declare, as a `Stage` on which requests can be tried. Prints a warning for the
    rejected documents. `read`: a parse cache, for documents that are parsed more than once."""
    stage, refused = staged(documents, read)
    warn(refused)
    return stage


def staged(
    documents: list[Document],
    read: Reading | None = None,
    running: Iterable[tuple[ObjectKey, tuple[Value, ...]]] | None = None,
) -> tuple[Stage, tuple[Problem, ...]]:
    """Return the mesh that the documents declare, as a `Stage` on which requests can be tried, and the errors of the
    rejected documents. `read` is a parse cache, for documents that are parsed more than once. `running` holds a
    cluster's pods and EndpointSlices."""
    from weft.api.parse_cache import Reading
    from weft.cli.read.mesh_files import FileAdmission
    from weft.inspect.rehearse.mesh_from_files import written_mesh
    from weft.inspect.stage import Stage

    parsed = written_mesh(documents, admit=FileAdmission(), running=running, read=read or Reading())
    return Stage(parsed.mesh), parsed.problems


def is_error(problem: Problem) -> bool:
    from weft.base.problem import Severity

    return problem.severity is Severity.ERROR


def coded(problem: Problem) -> Problem:
    from weft.analyze.finding import coded as with_code

    return with_code(problem)


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
    """Return the mesh before the change: the directory `against`, the mesh on this machine, or a cluster."""
    refuse_two(mesh, kubernetes=kubernetes, kubeconfig=kubeconfig, context=context)
    if against is not None:
        given = read([against])
        if not given.documents:
            check(given.problems)
        return Base(str(against), given.documents, given.cases, problems=tuple(given.problems))
    chosen = which(mesh, kubernetes=kubernetes, kubeconfig=kubeconfig, context=context, or_files="--against DIR")
    if chosen is None:
        return _cluster(kubeconfig, context, system)
    if isinstance(chosen, Path):
        from weft.cli.reach.control import ControlReach

        given = _served(chosen)
        documents, refused = in_force(given.documents, ControlReach(chosen).ask("configz"))
        problems = (*given.problems, *refused)
        return Base(f"weft control at {chosen}", documents, given.cases, problems=problems, runs=True)
    from weft.cli.read.recent_traffic import seen_here
    from weft.local.client import fetch_debug, fetch_status

    status = fetch_status(chosen)
    given = read([Path(status.directory)])
    documents, refused = in_force(given.documents, fetch_debug(chosen, "configz"))
    problems = (*given.problems, *refused)
    return Base(f"mesh {chosen}", documents, given.cases, recent=seen_here(status), problems=problems, runs=True)


def in_force(documents: list[Document], configz: bytes) -> tuple[list[Document], list[Problem]]:
    """Return the documents that a running mesh uses, and the errors of the documents that were replaced. A document
    with an error is replaced by the last valid version of its object, if the debug page `configz` contains one."""
    import msgspec

    from weft.api.kinds import key_kind
    from weft.api.parse import parse
    from weft.history.journal import Said
    from weft.history.object_texts import document_of
    from weft.model.names import ObjectKey

    good: dict[ObjectKey, Document] = {}
    for body in msgspec.json.decode(configz):
        body.pop("origin", None)
        metadata = body.get("metadata") or {}
        kind = key_kind(str(body.get("apiVersion", "")), str(body.get("kind", "")))
        key = ObjectKey(kind, str(metadata.get("namespace", "")), str(metadata.get("name", "")))
        if (document := document_of(key, Said(msgspec.json.encode(body).decode(), "", 0))) is not None:
            good[key] = document
    used, problems = {**good}, []
    for document in documents:
        errors = [each for each in parse(document).problems if is_error(each)]
        if errors and document.key in good:
            problems += errors
        else:
            used[document.key] = document
    return list(used.values()), problems


def _served(place: Path) -> GivenFiles:
    from weft.cli.reach.control import ControlReach

    return read([ControlReach(place).directory()])


def _cluster(kubeconfig: Path | None, context: str | None, system: str) -> Base:
    import asyncio

    from weft.cli.reach.cluster import client
    from weft.cli.read.recent_traffic import seen_on_cluster
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
) -> tuple[list[RequestCase], tuple[SeenRequest, ...]]:
    """Return the requests that `weft diff` tries on two moments of a mesh's history: the RequestTests beside its YAML,
    and recent traffic."""
    import asyncio

    from weft.cli.read.recent_traffic import seen_here, seen_on_cluster

    chosen = which(mesh, kubernetes=kubernetes, kubeconfig=kubeconfig, context=context)
    if isinstance(chosen, Path):
        return _served(chosen).cases, ()
    if chosen is not None:
        from weft.local.client import fetch_status

        status = fetch_status(chosen)
        return read([Path(status.directory)]).cases, seen_here(status)
    from weft.cli.reach.cluster import client

    async def run() -> tuple[SeenRequest, ...]:
        async with client(kubeconfig, context) as cluster:
            return await seen_on_cluster(cluster)

    return [], asyncio.run(run())
