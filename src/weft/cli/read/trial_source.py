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
    """The mesh before a change."""

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

    found = GivenFiles([], [], [])
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
    """Print the errors among `problems`, and end the command if there is one: the result would lack the rejected
    objects."""
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
    """Print one warning for all errors of the base mesh, whose files are not among those given now."""
    errors = sorted({coded(each) for each in problems if is_error(each)}, key=lambda each: (str(each.where), each.what))
    if errors:
        count = f"{len(errors)} errors" if len(errors) > 1 else "an error"
        counts = "the last valid version of these objects is used" if runs else "these objects are left out"
        say(f"warning: {name} has {count}, and {counts}; the first: {errors[0]}")


def stage_of(documents: list[Document], read: Reading | None = None) -> Stage:
    """Return the stage of the given documents, and print a warning for the rejected ones."""
    stage, refused = staged(documents, read)
    warn(refused)
    return stage


def staged(
    documents: list[Document],
    read: Reading | None = None,
    running: Iterable[tuple[ObjectKey, tuple[Value, ...]]] | None = None,
) -> tuple[Stage, tuple[Problem, ...]]:
    """Return the stage of the given documents, and the errors of the rejected ones. `read` is a parse cache, for
    documents that are parsed more than once. `running` holds a cluster's pods and EndpointSlices."""
    from weft.api.parse_cache import Reading
    from weft.cli.read.mesh_files import FileAdmission
    from weft.inspect.rehearse.mesh_from_files import written_mesh
    from weft.inspect.stage import Stage

    written = written_mesh(documents, admit=FileAdmission(), running=running, read=read or Reading())
    return Stage(written.mesh), written.problems


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
        found = read([against])
        if not found.documents:
            check(found.problems)
        return Base(str(against), found.documents, found.cases, problems=tuple(found.problems))
    meant = which(mesh, kubernetes=kubernetes, kubeconfig=kubeconfig, context=context, or_files="--against DIR")
    if meant is None:
        return _cluster(kubeconfig, context, system)
    if isinstance(meant, Path):
        from weft.cli.reach.control import ControlReach

        found = _served(meant)
        documents, refused = in_force(found.documents, ControlReach(meant).ask("configz"))
        problems = (*found.problems, *refused)
        return Base(f"weft control at {meant}", documents, found.cases, problems=problems, runs=True)
    from weft.cli.read.recent_traffic import seen_here
    from weft.local.client import fetch_debug, fetch_status

    status = fetch_status(meant)
    found = read([Path(status.directory)])
    documents, refused = in_force(found.documents, fetch_debug(meant, "configz"))
    problems = (*found.problems, *refused)
    return Base(f"mesh {meant}", documents, found.cases, recent=seen_here(status), problems=problems, runs=True)


def in_force(documents: list[Document], configz: bytes) -> tuple[list[Document], list[Problem]]:
    """Return the documents that a running mesh uses, and the errors of the replaced ones. A document with an error is
    replaced by the last valid version of the object, from the debug page `configz`, if there was one."""
    import msgspec

    from weft.api.kinds import key_kind
    from weft.api.parse import parse
    from weft.history.journal import Said
    from weft.history.object_texts import document_of
    from weft.model.names import ObjectKey

    good: dict[ObjectKey, Document] = {}
    for said in msgspec.json.decode(configz):
        said.pop("origin", None)
        metadata = said.get("metadata") or {}
        kind = key_kind(str(said.get("apiVersion", "")), str(said.get("kind", "")))
        key = ObjectKey(kind, str(metadata.get("namespace", "")), str(metadata.get("name", "")))
        if (document := document_of(key, Said(msgspec.json.encode(said).decode(), "", 0))) is not None:
            good[key] = document
    found, problems = {**good}, []
    for document in documents:
        errors = [each for each in parse(document).problems if is_error(each)]
        if errors and document.key in good:
            problems += errors
        else:
            found[document.key] = document
    return list(found.values()), problems


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

    meant = which(mesh, kubernetes=kubernetes, kubeconfig=kubeconfig, context=context)
    if isinstance(meant, Path):
        return _served(meant).cases, ()
    if meant is not None:
        from weft.local.client import fetch_status

        status = fetch_status(meant)
        return read([Path(status.directory)]).cases, seen_here(status)
    from weft.cli.reach.cluster import client

    async def run() -> tuple[SeenRequest, ...]:
        async with client(kubeconfig, context) as cluster:
            return await seen_on_cluster(cluster)

    return [], asyncio.run(run())
