"""`weft validate`: reads YAML as a mesh would, and reports every problem, in the objects and between them. It runs
nothing and needs no root privileges.

If one of the given paths is a directory, or one of the objects is a Workload, all given files together are a
complete mesh, and references between objects are checked. Otherwise they are a part of a mesh, and the objects that
they refer to may be elsewhere.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.exceptions import Exit

from weft.cli.flags import shared
from weft.cli.print.output import counted, fail, is_data, print_data, say, trouble_is_no_answer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from weft.api.document import Document
    from weft.base.problem import Problem


@click.command()
@click.argument(
    "paths",
    nargs=-1,
    type=click.Path(path_type=Path),
    help="Files, directories, or - for standard input; the current directory if none is given.",
)
@shared.files_as_option
@click.option("--strict", is_flag=True, help="Exit with 1 for warnings too.")
@shared.table_or_data
def validate(paths: tuple[Path, ...], files: tuple[Path, ...], strict: bool, output: str) -> None:
    """Check YAML files and their references. Reports every problem with its file, line and a hint.

    \b
    Exit codes: 0 no errors, 1 an error, or with --strict a warning, 2 no result: no such file, an invalid
    command line.

    \b
    Example: weft validate examples/shop
             weft validate payments.yaml catalog.yaml
             kustomize build . | weft validate -
    """
    from weft.base.problem import Severity

    with trouble_is_no_answer():
        objects, problems, partial = _read([*paths, *files] or [Path()])
    errors = sum(problem.severity is Severity.ERROR for problem in problems)
    if is_data(output):
        print_data(problems, output)
    else:
        for problem in problems:
            click.echo(str(problem))
    warnings = len(problems) - errors
    say(f"{counted(objects, 'object')}, {counted(errors, 'error')}, {counted(warnings, 'warning')}")
    if partial:
        say("files without a Workload count as a part of a mesh: references to other objects were not checked")
    if errors or (strict and warnings):
        raise Exit(1)


def _read(paths: list[Path]) -> tuple[int, list[Problem], bool]:
    """Read all `paths`. Return (count, problems, partial): the number of objects, their problems ordered by file and
    line, and whether the files are only a part of a mesh."""
    from weft.analyze.finding import coded
    from weft.cli.read.mesh_files import FileAdmission, meshes_in
    from weft.inspect.rehearse.rehearsal import own_problems, rehearse

    given: list[Document] = []
    problems: list[Problem] = []
    whole = False
    for documents, flaws, is_mesh in meshes_in(paths):
        given += documents
        problems += flaws
        whole = whole or is_mesh
    by_key = {document.key: document for document in given}
    whole = whole or any(key.kind == "Workload" for key in by_key)
    if whole:
        documents = list(by_key.values())
        problems += rehearse(documents, admit=FileAdmission())
        problems += _of_programs(documents)
        problems += _of_certificates(documents)
        problems += _of_keys(documents)
    # Objects of a part of a mesh, and objects that occur in two of the paths, are also checked one by one.
    alone = [each for each in given if not whole or by_key[each.key] is not each]
    problems += (problem for document in alone for problem in own_problems(document))
    objects, partial = len(by_key), bool(by_key) and not whole
    if not objects and not problems:
        fail(f"no objects in {', '.join(str(path) for path in paths)}", "YAML files end in .yaml, .yml or .json")
    return (
        objects,
        sorted(dict.fromkeys(map(coded, problems)), key=lambda each: (each.where.file, each.where.line)),
        partial,
    )


def _of_programs(documents: Iterable[Document]) -> Iterator[Problem]:
    from weft.api.parse import parse
    from weft.cli.read.programs import problem_of
    from weft.model.workload import Workload

    for document in documents:
        if document.key.kind == "Workload":
            for value in parse(document).values:
                if isinstance(value, Workload) and (problem := problem_of(value, document)):
                    yield problem


def _of_certificates(documents: list[Document]) -> Iterator[Problem]:
    from weft.cli.read.certificate_files import problems_of

    if any(document.key.kind == "Workload" for document in documents):  # else proxies may run elsewhere
        for document in documents:
            if document.key.kind == "DestinationRule":
                yield from problems_of(document)


def _of_keys(documents: list[Document]) -> Iterable[Problem]:
    from weft.cli.read.readable_keys import problems_of

    has_apps = any(document.key.kind == "Workload" for document in documents)
    return problems_of(documents) if has_apps else ()
