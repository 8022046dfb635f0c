"""How every command speaks: words and errors on standard error, data on standard output, a hint after an error.
Exit codes: 0 for done, 1 for a failure or a problem found, 2 for a command line that makes no sense; where 1 is an
answer, 2 also for what prevents one."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NoReturn

import typer

if TYPE_CHECKING:
    from rich.console import RenderableType

    from weft.base.problem import Problem

_LONGEST_WORD = 200  # letters, in an error
WIDTH_WITHOUT_TERMINAL = 100_000  # wider than any row, so that a pipe gets one line for each


class Format(StrEnum):
    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"


class TextOrData(StrEnum):
    """For a person, or for a program, which may like YAML better."""

    TEXT = "text"
    SHORT = "short"  # the same
    JSON = "json"
    YAML = "yaml"


class TableOrData(StrEnum):
    """The same, where it is a table."""

    TABLE = "table"
    SHORT = "short"  # the same
    JSON = "json"
    YAML = "yaml"


TEXT_OR_DATA = typer.Option(TextOrData.TEXT, "-o", "--output", help="text (short is the same), json or yaml.")
TABLE_OR_DATA = typer.Option(TableOrData.TABLE, "-o", "--output", help="table (short is the same), json or yaml.")


def is_data(output: StrEnum) -> bool:
    """Whether a program reads it."""
    return output.value in ("json", "yaml")


def counted(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def say(words: str) -> None:
    typer.echo(words, err=True)


def fail(what: str, hint: str, *, code: int = 1) -> NoReturn:
    """`hint`: what to do next; nothing only where there is nothing to do."""
    say(f"error: {_cut(what)}")
    for line in hint.splitlines():
        say(f"hint: {line}")
    raise typer.Exit(code)


def _cut(words: str) -> str:
    """Without the middle of a word that nobody could read: a name that is longer than any may be."""
    return re.sub(rf"\S{{{_LONGEST_WORD + 1},}}", lambda found: f"{found[0][:_LONGEST_WORD]}…", words)


def fail_by(problem: Problem, *, code: int = 1) -> NoReturn:
    from weft.base.own_command import with_this_weft

    place = str(problem.where)
    fail(f"{place}: {problem.what}" if place else problem.what, with_this_weft(problem.hint), code=code)


@contextmanager
def trouble_is_no_answer() -> Iterator[None]:
    """For commands whose 1 says something, as diff's does: whatever prevents an answer ends them with 2."""
    try:
        yield
    except typer.Exit as ended:
        raise typer.Exit(2 if ended.exit_code == 1 else ended.exit_code) from None
    except Exception as error:
        problem = getattr(error, "problem", None)
        if problem is None:
            raise
        fail_by(problem, code=2)


def print_data(value: Any, output: StrEnum) -> None:
    """As JSON or as YAML."""
    if output.value == "json":
        print_json(value)
        return
    import msgspec
    import yaml

    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    plain = msgspec.to_builtins(value)
    typer.echo(yaml.dump(plain, Dumper=dumper, sort_keys=False, allow_unicode=True), nl=False)


def print_json(value: Any) -> None:
    import msgspec

    typer.echo(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def print_table(renderable: RenderableType) -> None:
    """Elsewhere than on a terminal: no colours, and a row is a line, however long."""
    from rich.console import Console

    if sys.stdout.isatty():
        Console(highlight=False).print(renderable)
        return
    console = Console(file=sys.stdout, highlight=False, width=WIDTH_WITHOUT_TERMINAL)
    for line in console.render_lines(renderable, pad=False):
        typer.echo("".join(segment.text for segment in line if not segment.control).rstrip())
