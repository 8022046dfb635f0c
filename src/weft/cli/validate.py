"""`weft validate`: reads YAML as a mesh would and says everything that is wrong, in the objects and between them. Runs
nothing, needs no root.

A directory is a mesh of its own. Files, and standard input, are together one mesh if there is a Workload among them;
otherwise they are a part of one, and what they refer to may well stand elsewhere.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from weft.cli.output import Format, fail, print_json, say

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from weft.api.document import Document
    from weft.base.problem import Problem
    from weft.files.directory import Content
    from weft.model.mesh import Value

_STDIN = ("-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0")


def validate(
    paths: list[Path] = typer.Argument(
        None, help="Files, directories, or - for standard input; the current directory if none is given."
    ),
    strict: bool = typer.Option(False, "--strict", help="Exit with 1 for warnings too."),
    output: Format = typer.Option(Format.TABLE, "-o", "--output", help="table, or json for a program."),
) -> None:
    """Check YAML files, and that what they refer to is there. Says every problem with its file, line and a hint.

    \b
    Exit codes: 0 no errors, 1 an error (with --strict, or a warning), 2 a command line that makes no sense.

    \b
    Example: weft validate examples/shop
             weft validate payments.yaml catalog.yaml
             kustomize build . | weft validate -
    """
    from weft.base.problem import Severity

    objects, problems, partial = _read(paths or [Path()])
    errors = sum(problem.severity is Severity.ERROR for problem in problems)
    if output is Format.JSON:
        print_json(problems)
    else:
        for problem in problems:
            typer.echo(str(problem))
    warnings = len(problems) - errors
    say(f"{_count(objects, 'object')}, {_count(errors, 'error')}, {_count(warnings, 'warning')}")
    if partial:
        say("without a Workload this is a part of a mesh: references to other objects were not checked")
    if errors or (strict and warnings):
        raise typer.Exit(1)


def _read(paths: list[Path]) -> tuple[int, list[Problem], bool]:
    """The number of objects, what is wrong with them in the order of files and lines, and whether a part was alone."""
    from weft.api.parse import parse
    from weft.control.rehearsal import rehearse

    objects, partial = 0, False
    problems: list[Problem] = []
    for documents, found, whole in _meshes(paths):
        objects += len(documents)
        problems += found
        if whole or any(document.key.kind == "Workload" for document in documents):
            problems += rehearse(documents, admit=_Admission())
            problems += _of_programs(documents)
            problems += _of_certificates(documents)
        else:
            partial = bool(documents)
            problems += (problem for document in documents for problem in parse(document).problems)
    if not objects and not problems:
        fail(f"no objects in {', '.join(str(path) for path in paths)}", "YAML files end in .yaml, .yml or .json")
    return objects, sorted(dict.fromkeys(problems), key=lambda each: (each.where.file, each.where.line)), partial


def _meshes(paths: list[Path]) -> Iterator[tuple[list[Document], list[Problem], bool]]:
    """Each with its documents, what is wrong with its files, and whether it is surely a whole one."""
    import msgspec

    from weft.files.directory import Directory

    files: dict[str, Content] = {}
    for path in paths:
        if str(path) in _STDIN:
            files["stdin"] = _standard_input()
        elif path.is_dir():
            yield _of_directory(path)
        else:
            shown, content = _of_file(path)
            files[shown] = content
    if files:
        together = Directory()
        together.apply(files)
        here = [
            msgspec.structs.replace(document, directory=str(Path(document.file).absolute().parent))
            for document in together.live.values()
        ]
        yield here, list(together.problems()), False


def _of_directory(path: Path) -> tuple[list[Document], list[Problem], bool]:
    from weft.files import scan
    from weft.files.directory import Directory

    shown, root = scan.shown(path), str(path.absolute())
    try:
        seen = scan.look(root, shown)
    except OSError as error:
        fail(f"{shown} cannot be read: {error.strerror or error}", f"try: ls -ld {shown}")
    directory = Directory(root, shown)
    directory.apply({name: scan.read(root, name, shown) for name in seen.files})
    return list(directory.live.values()), [*scan.problems_of(seen), *directory.problems()], True


def _of_file(path: Path) -> tuple[str, Content]:
    from weft.files import scan
    from weft.files.documents import MOST_BYTES

    shown = scan.shown(path)
    if not path.exists():
        fail(f"{shown} does not exist", "give a file, a directory, or - for standard input")
    if path.is_file():
        return shown, scan.read(str(path.absolute().parent), path.name, scan.shown(path.parent))
    with path.open("rb") as pipe:  # such as a shell's <(…)
        return shown, pipe.read(MOST_BYTES + 1)


def _standard_input() -> bytes:
    from weft.files.documents import MOST_BYTES

    if sys.stdin.isatty():
        say("reading standard input; end it with Ctrl-D")
    return sys.stdin.buffer.read(MOST_BYTES + 1)


class _Admission:
    """Services get their addresses as in a running mesh: without one, some would take a whole port."""

    def __init__(self) -> None:
        from weft.local.addresses import Addresses

        self._addresses = Addresses()

    def __call__(self, value: Value) -> Value:
        from weft.local.error import LocalError

        try:
            return self._addresses.admit(value)
        except LocalError:  # more services than a machine has addresses for
            return value


def _of_programs(documents: Iterable[Document]) -> Iterator[Problem]:
    from weft.api.parse import parse
    from weft.cli.programs import problem_of
    from weft.model.workload import Workload

    for document in documents:
        if document.key.kind == "Workload":
            for value in parse(document).values:
                if isinstance(value, Workload) and (problem := problem_of(value, document)):
                    yield problem


def _of_certificates(documents: list[Document]) -> Iterator[Problem]:
    from weft.cli.certificate_files import problems_of

    if any(document.key.kind == "Workload" for document in documents):  # else its proxies may be on other machines
        for document in documents:
            if document.key.kind == "DestinationRule":
                yield from problems_of(document)


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"
