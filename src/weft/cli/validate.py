"""`weft validate`: reads YAML as a mesh would and says everything that is wrong. Runs nothing, needs no root."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from weft.cli.output import Format, fail, print_json, say

if TYPE_CHECKING:
    from weft.base.problem import Problem
    from weft.files.directory import Directory


def validate(
    paths: list[Path] = typer.Argument(None, help="Files or directories; the current directory if none is given."),
    output: Format = typer.Option(Format.TABLE, "-o", "--output", help="table, or json for a program."),
) -> None:
    """Check YAML files. Says every problem with its file, line and a hint; exit code 1 if there is an error.

    \b
    Example: weft validate examples/shop
             weft validate payments.yaml catalog.yaml
    """
    from weft.base.problem import Severity

    objects, problems = _read(paths or [Path()])
    errors = sum(problem.severity is Severity.ERROR for problem in problems)
    if output is Format.JSON:
        print_json(problems)
    else:
        for problem in problems:
            typer.echo(str(problem))
    warnings = len(problems) - errors
    say(f"{_count(objects, 'object')}, {_count(errors, 'error')}, {_count(warnings, 'warning')}")
    if errors:
        raise typer.Exit(1)


def _read(paths: list[Path]) -> tuple[int, list[Problem]]:
    """The number of objects, and what is wrong with them, in the order of files and lines."""
    from weft.api.parse import parse
    from weft.files.directory import Directory
    from weft.model.settings import Settings

    objects = 0
    problems: list[Problem] = []
    for path in paths:
        directory = Directory(str(path.absolute() if path.is_dir() else path.absolute().parent), _shown(path))
        problems += _take_in(directory, path)
        problems += directory.problems()
        for document in directory.live.values():
            objects += 1
            problems += parse(document, Settings().domain).problems
    if not objects and not problems:
        fail(f"no objects in {', '.join(str(path) for path in paths)}", "YAML files end in .yaml, .yml or .json")
    return objects, sorted(dict.fromkeys(problems), key=lambda each: (each.where.file, each.where.line))


def _take_in(directory: Directory, path: Path) -> list[Problem]:
    from weft.files import scan

    if path.is_dir():
        shown, root = _shown(path), str(path.absolute())
        seen = scan.look(root, shown)
        directory.apply({name: scan.read(root, name, shown) for name in seen.files})
        return list(scan.problems_of(seen))
    if not path.exists():
        fail(f"{path} does not exist", "give a file or a directory")
    directory.apply({path.name: scan.read(str(path.absolute().parent), path.name, _shown(path))})
    return []


def _shown(path: Path) -> str:
    return str(path if path.is_dir() else path.parent)


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"
