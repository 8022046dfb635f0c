"""`weft analyze`: runs every check on files, on a running mesh, or on files applied over a running mesh. It starts and
writes nothing.

Findings are printed on standard output, one line each or as JSON or YAML; messages on standard error. The exit code is
meant for CI.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click
from click.exceptions import Exit

from weft.cli.flags import shared
from weft.cli.print.output import counted, fail, is_data, print_data, say, trouble_is_no_answer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from weft.api.document import Document
    from weft.base.problem import Problem
    from weft.inspect.rehearse.examination import Examined
    from weft.kube.inventory import Inventory

PAGE = "docs/reference/checks.md"
_COLOURS = {"error": "red", "warning": "yellow", "info": "cyan"}


@click.command()
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path), help="Files, directories, or - for standard input.")
@shared.files_as_option
@click.option("-A", "--all-namespaces", is_flag=True, help="Analyze all namespaces of the cluster.")
@shared.namespace_option("Only this namespace; on a cluster, the current one by default.")
@shared.mesh
@shared.kubernetes_flag(shared.KUBERNETES_HELP, "-k", "--use-kube")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["log", "text", "short", "json", "yaml"]),
    default="log",
    show_default=True,
    help="log (text and short are the same), json or yaml.",
)
@click.option(
    "--failure-threshold",
    type=click.Choice(["Info", "Warning", "Error"], case_sensitive=False),
    default="Warning",
    show_default=True,
    help="The lowest level of a finding that makes the exit code 1.",
)
@click.option(
    "--output-threshold",
    type=click.Choice(["Info", "Warning", "Error"], case_sensitive=False),
    default="Info",
    show_default=True,
    help="The lowest level of a finding that is shown.",
)
@click.option(
    "-S",
    "--suppress",
    multiple=True,
    help="CODE=OBJECT: ignore findings of this check about this object; * matches anything.",
)
@click.option("-L", "--list", "--list-analyzers", "listing", is_flag=True, help="List every check and exit.")
@click.option("--explain", default="", help="Describe one check and exit.")
@click.option("--ignore-unknown", is_flag=True, help="Skip files that contain no objects.")
@click.option("-R", "--recursive", is_flag=True, help="No effect: directories are always read recursively.")
@click.option("-v", "--verbose", is_flag=True, help="Print a description of the check below each finding.")
@click.option("--color/--no-color", "colour", default=None, help="Use colours; by default if stdout is a terminal.")
@click.option(
    "--meshConfigFile",
    "mesh_config",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="A file with a MeshConfig, which replaces the mesh's own.",
)
@shared.system
@shared.settings_revision
@shared.which_cluster
def analyze(
    paths: tuple[Path, ...],
    files: tuple[Path, ...],
    all_namespaces: bool,
    namespace: str,
    mesh: str | None,
    kubernetes: bool,
    output: str,
    failure_threshold: str,
    output_threshold: str,
    suppress: tuple[str, ...],
    listing: bool,
    explain: str,
    ignore_unknown: bool,
    recursive: bool,
    verbose: bool,
    colour: bool | None,
    mesh_config: Path | None,
    system: str,
    revision: str,
    kubeconfig: Path | None,
    context: str | None,
) -> None:
    """Find misconfigurations, in files or in a mesh. The mesh runs on this machine or on a cluster.

    Files alone are read as a whole mesh. Without files, weft analyzes the mesh on this machine, else the current
    cluster. Each finding has a code: docs/reference/checks.md, or --explain CODE.

    \b
    Exit codes: 0 no finding at or above --failure-threshold, 1 a finding, 2 no result: no such file, no mesh,
            an invalid command line.

    \b
    Example: weft analyze examples/shop
             weft analyze -f payments.yaml --use-kube
             weft analyze -A --suppress "WFT0307=Service *.legacy"
    """
    if listing or explain:
        _tell(explain)
        return
    wanted = [_suppression(text) for text in suppress]
    given = [*paths, *files]
    named = mesh is not None or kubernetes or kubeconfig is not None or context is not None
    cluster = _Cluster(kubernetes, kubeconfig, context, system, revision)
    with trouble_is_no_answer():
        files_read = _written(given, mesh_config)
        if given and not named and not all_namespaces:
            examined, source = _of_files(files_read, namespace), "files"
        else:
            examined, source = _of_running(files_read, mesh, cluster, everywhere=all_namespaces, namespace=namespace)
    problems = [
        problem
        for problem in examined.problems
        if not any(_is_about(problem, code, name) for code, name in wanted)
        and (problem.where.object or not ignore_unknown)
    ]
    shown = [problem for problem in problems if _at_least(problem, output_threshold)]
    _show(shown, output, verbose=verbose, colour=colour)
    say(f"{source}: {counted(examined.objects, 'object')}, {_summary(problems)}")
    if output == "log" and problems:
        say(f"hint: for the meaning of a code, see: weft analyze --explain {problems[0].code}, or {PAGE}")
    if any(_at_least(problem, failure_threshold) for problem in problems):
        raise Exit(1)


class _Cluster(NamedTuple):
    named: bool  # a cluster is used even if a mesh runs on this machine
    kubeconfig: Path | None
    context: str | None
    system: str  # the control plane's namespace
    revision: str


def _of_running(
    written: _Written, mesh: str | None, cluster: _Cluster, *, everywhere: bool, namespace: str
) -> tuple[Examined, str]:
    """Return (findings, name): the findings in a running mesh on this machine or in a cluster, with the files `written`
    applied, and a name for the mesh or cluster. `mesh` and `cluster`: the flags that choose it. `everywhere` and
    `namespace`: the flags -A and -n, which choose the namespaces of the findings."""
    from weft.cli.reach.connect import reach
    from weft.cli.reach.local import LocalReach

    reached = reach(
        mesh,
        kubernetes=cluster.named,
        kubeconfig=cluster.kubeconfig,
        context=cluster.context,
        system=cluster.system,
        or_files="weft analyze DIR",
    )
    reached.close()
    if isinstance(reached, LocalReach):
        return _of_mesh(reached.mesh, written, namespace), f"mesh {reached.mesh}"
    from weft.cli.reach.control import ControlReach

    if isinstance(reached, ControlReach):
        return _of_directory(reached.directory(), written, namespace), f"weft control at {reached.place}"
    return _of_cluster(written, cluster, everywhere=everywhere, namespace=namespace)


class _Written(NamedTuple):
    documents: list[Document]
    flaws: list[Problem]  # problems of the files


def _written(given: list[Path], mesh_config: Path | None = None) -> _Written:
    """Read all given files and directories as one mesh. The MeshConfig in the file `mesh_config`, if it is given,
    replaces the MeshConfig of the mesh."""
    from weft.cli.read.mesh_files import meshes_in

    documents: list[Document] = []
    flaws: list[Problem] = []
    for more, problems, _ in meshes_in(given):
        documents += more
        flaws += problems
    if given and not documents and not flaws:
        fail(f"no objects in {', '.join(map(str, given))}", "YAML files end in .yaml, .yml or .json")
    if mesh_config is not None:
        own = _settings_of(mesh_config)
        documents = [*(each for each in documents if each.key != own.key), own]
    return _Written(documents, flaws)


def _settings_of(file: Path) -> Document:
    """Return the MeshConfig in `file` as a document: wrapped in the ConfigMap that contains it in a mesh, because a
    MeshConfig by itself is not an object."""
    import json

    from weft.api.mesh_config import NAME
    from weft.files.documents import read_documents
    from weft.model.settings import Settings

    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        fail(
            f"{file} cannot be read: {error}",
            "give a text file with a MeshConfig, such as `trustDomain: cluster.local`",
        )
    metadata = {"name": NAME, "namespace": Settings().root_namespace}
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"mesh": text}}
    (document,) = read_documents(json.dumps(config_map).encode(), str(file)).documents
    return document


def _of_files(written: _Written, namespace: str) -> Examined:
    from weft.cli.read.mesh_files import FileAdmission
    from weft.inspect.rehearse.examination import examine

    examined = examine(written.documents, admit=FileAdmission())
    return _joined(examined, [*written.flaws, *_of_machine(written.documents)], namespace)


def _of_directory(directory: Path, over: _Written, namespace: str) -> Examined:
    """Return the findings in `directory`, which a `weft control` serves, with the files `over` applied. With
    `namespace`, return only the findings in that namespace."""
    from weft.cli.read.mesh_files import FileAdmission
    from weft.inspect.rehearse.examination import examine

    own = _written([directory])
    examined = examine(own.documents, admit=FileAdmission(), laid_over=over.documents)
    return _joined(examined, [*over.flaws, *own.flaws], namespace)


def _of_mesh(name: str, over: _Written, namespace: str) -> Examined:
    """Return the findings in the directory of the mesh `name`, with the files `over` applied. If `over` is empty,
    the problems that the running mesh reports are added. With `namespace`, return only the findings in that
    namespace."""
    from weft.cli.read.mesh_files import FileAdmission
    from weft.inspect.rehearse.examination import examine
    from weft.local.client import fetch_problems, fetch_status

    own = _written([Path(fetch_status(name).directory)])
    examined = examine(own.documents, admit=FileAdmission(), laid_over=over.documents)
    reported = () if over.documents or over.flaws else fetch_problems(name)
    known = {(problem.where.object, problem.what) for problem in examined.problems}
    new = [problem for problem in reported if (problem.where.object, problem.what) not in known]
    of_machine = _of_machine([*own.documents, *over.documents])
    return _joined(examined, [*over.flaws, *own.flaws, *of_machine, *new], namespace)


def _of_cluster(over: _Written, chosen: _Cluster, *, everywhere: bool, namespace: str) -> tuple[Examined, str]:
    import asyncio

    from weft.cli.reach.cluster import client
    from weft.cli.read.cluster_state import running
    from weft.inspect.rehearse.examination import examine
    from weft.kube.inventory import take

    async def run() -> tuple[Inventory, str, str]:
        async with client(chosen.kubeconfig, chosen.context) as cluster:
            taken = await take(cluster, root_namespace=chosen.system, revision=chosen.revision)
            return taken, cluster.connection.namespace, cluster.connection.server

    inventory, usual, server = asyncio.run(run())
    examined = examine(inventory.documents, running=running(inventory), laid_over=over.documents)
    wanted = "" if everywhere else namespace or ("" if over.documents else usual)
    return _joined(examined, over.flaws, wanted), f"cluster {server}" + (f", namespace {wanted}" if wanted else "")


def _of_machine(documents: list[Document]) -> Iterator[Problem]:
    """Yield problems with this machine's files: a Workload's program that cannot be started, a DestinationRule's
    certificate file that cannot be read, a private key that an app can read. Yield none if there is no Workload,
    because the mesh then runs elsewhere."""
    from weft.api.parse import parse
    from weft.cli.read import certificate_files, programs, readable_keys
    from weft.model.workload import Workload

    if not any(document.key.kind == "Workload" for document in documents):
        return
    yield from readable_keys.problems_of(documents)
    for document in documents:
        if document.key.kind == "DestinationRule":
            yield from certificate_files.problems_of(document)
        for value in parse(document).values if document.key.kind == "Workload" else ():
            if isinstance(value, Workload) and (problem := programs.problem_of(value, document)):
                yield problem


def _joined(examined: Examined, others: Iterable[Problem], namespace: str) -> Examined:
    import msgspec

    from weft.analyze.finding import coded

    problems = {*examined.problems, *map(coded, others)}
    ours = [problem for problem in problems if not namespace or _is_in(problem, namespace)]
    ordered = sorted(ours, key=lambda each: (each.where.file, each.where.line, str(each)))
    return msgspec.structs.replace(examined, problems=tuple(ordered))


def _is_in(problem: Problem, namespace: str) -> bool:
    """Return whether a problem is about an object in `namespace`, or about an object without a namespace, which
    concerns all namespaces."""
    place, slash, _ = problem.where.object.partition(" ")[2].partition("/")
    return not slash or place == namespace or problem.where.object == f"Namespace {namespace}"


def _suppression(text: str) -> tuple[str, str]:
    from weft.analyze.checks import CHECKS, RETIRED

    code, equals, name = text.partition("=")
    if not equals or not name:
        fail(f"`{text}` is not CODE=OBJECT", 'for example: --suppress "WFT0104=VirtualService web.shop"', code=2)
    if code != "*" and code not in CHECKS and code not in RETIRED:
        fail(f"there is no check `{code}`", _known_as(code), code=2)
    return code, name


def _is_about(problem: Problem, code: str, name: str) -> bool:
    """Return whether the suppression `code`=`name` matches a problem. `name` may contain wildcards, and names
    objects as istioctl does, `Kind name.namespace`, or as weft does, `Kind namespace/name`."""
    from fnmatch import fnmatchcase

    shown = problem.where.object
    return code in ("*", problem.code) and (fnmatchcase(shown, name) or fnmatchcase(_istio_name(shown), name))


def _istio_name(shown: str) -> str:
    kind, _, rest = shown.partition(" ")
    namespace, slash, name = rest.partition("/")
    return f"{kind} {name}.{namespace}" if slash else shown


def _at_least(problem: Problem, level: str) -> bool:
    from weft.base.problem import Severity

    return problem.severity.weight >= Severity(level.lower()).weight


def _show(problems: list[Problem], output: str, *, verbose: bool, colour: bool | None) -> None:
    from weft.analyze.checks import CHECKS

    if not is_data(output):
        for problem in problems:
            level = click.style(problem.level, fg=_COLOURS[problem.severity])
            click.echo(str(problem).replace(f"{problem.level}: ", f"{level}: ", 1), color=colour)
            if verbose:
                click.echo(f"  {CHECKS[problem.code].title}. {CHECKS[problem.code].more}")
        return
    rows = [_row(problem) for problem in problems]
    print_data(rows, output)


def _row(problem: Problem) -> dict[str, str]:
    """Return a finding (`problem`) as data, with istioctl's field names and some fields that istioctl does not have."""
    from weft.analyze.checks import CHECKS

    where = problem.where
    row = {
        "code": problem.code,
        "level": problem.severity.value.title(),
        "origin": _istio_name(where.object),
        "reference": f"{where.file}:{where.line}" if where.file and where.line else where.file,
        "message": problem.what,
        "field": where.field,
        "hint": problem.hint,
        "check": CHECKS[problem.code].title,
        "documentation": _page(problem.code),
    }
    return {name: value for name, value in row.items() if value}


def _tell(code: str) -> None:
    from weft.analyze.checks import CHECKS

    if not code:
        for check in CHECKS.values():
            click.echo(f"{check.code}  {check.severity.value:8} {check.title}")
        return
    check = CHECKS.get(code.upper())  # type: ignore[assignment]
    if check is None:
        fail(f"there is no check `{code}`", _known_as(code), code=2)
    click.echo(f"{check.code} ({check.severity}): {check.title}\n{check.more}")
    if check.istio:
        click.echo(f"In istioctl: {', '.join(check.istio)}")
    click.echo(f"Documentation: {_page(check.code)}")


def _known_as(code: str) -> str:
    """Return a hint for an unknown code: the checks that correspond to a code of istioctl, or a similar code."""
    from weft.analyze.checks import CHECKS
    from weft.base.suggest import did_you_mean

    code, listed = code.upper(), "list them with: weft analyze --list"
    if not code.startswith("IST"):
        return did_you_mean(code, CHECKS) or listed
    same = [check.code for check in CHECKS.values() if code in check.istio]
    if not same:
        return f"no check corresponds to istioctl's {code}; {listed}"
    return f"istioctl's {code} corresponds to {', '.join(same)}"


def _page(code: str) -> str:
    return f"{PAGE}#{code.lower()}"


def _summary(problems: list[Problem]) -> str:
    severities = [problem.severity.value for problem in problems]
    words = [counted(severities.count(name), name) for name in ("error", "warning")]
    return ", ".join([*words, f"{severities.count('info')} info"])
