"""How every command speaks: words and errors on standard error, data on standard output, a hint after an error.
Exit codes: 0 for done, 1 for a failure or a problem found, 2 for a command line that makes no sense; where 1 is an
answer, 2 also for what prevents one."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

import click
from click.exceptions import Exit

if TYPE_CHECKING:
    from rich.console import RenderableType

    from weft.base.problem import Problem

_LONGEST_WORD = 200  # letters, in an error
WIDTH_WITHOUT_TERMINAL = 100_000  # wider than any row, so that a pipe gets one line for each


def is_data(output: str) -> bool:
    """Whether a program reads it."""
    return output in ("json", "yaml")


def counted(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def say(words: str) -> None:
    click.echo(words, err=True)


def fail(what: str, hint: str, *, code: int = 1) -> NoReturn:
    """`hint`: what to do next; nothing only where there is nothing to do."""
    say(f"error: {_cut(what)}")
    for line in hint.splitlines():
        say(f"hint: {line}")
    raise Exit(code)


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
    except Exit as ended:
        raise Exit(2 if ended.exit_code == 1 else ended.exit_code) from None
    except Exception as error:
        problem = getattr(error, "problem", None)
        if problem is None:
            raise
        fail_by(problem, code=2)


def print_data(value: Any, output: str) -> None:
    """As JSON or as YAML."""
    if output == "json":
        print_json(value)
        return
    import msgspec
    import yaml

    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    plain = msgspec.to_builtins(value)
    click.echo(yaml.dump(plain, Dumper=dumper, sort_keys=False, allow_unicode=True), nl=False)


def print_json(value: Any) -> None:
    import msgspec

    click.echo(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def print_table(renderable: RenderableType) -> None:
    """Elsewhere than on a terminal: no colours, and a row is a line, however long."""
    from rich.console import Console

    if sys.stdout.isatty():
        Console(highlight=False).print(renderable)
        return
    console = Console(file=sys.stdout, highlight=False, width=WIDTH_WITHOUT_TERMINAL)
    for line in console.render_lines(renderable, pad=False):
        click.echo("".join(segment.text for segment in line if not segment.control).rstrip())
