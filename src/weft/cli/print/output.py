"""The output of every command: messages and errors on standard error, data on standard output, a hint after an error.
Exit codes: 0 for success, 1 for a failure or a problem found, 2 for an invalid command line. If 1 is a regular
result of a command, as for `weft diff`, 2 also means that there is no result."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click
from click.exceptions import Exit

if TYPE_CHECKING:
    from rich.console import RenderableType

    from weft.base.problem import Problem

_LONGEST_WORD = 200  # letters; longer words in an error are cut
_NARROWEST = 40  # columns; narrower terminals wrap by themselves
_HANGING = 4  # columns by which the further lines of a wrapped line are indented
_MESH_FLAGS = "weft.mesh-flags"
# A command that takes --mesh and --kubernetes, at the end of a line, and has neither.
_ENDS_WITH_COMMAND = re.compile(
    r"(?:^|: )weft (?:proxy-config|describe|why|proxy-status|explain|history|status|ps)\b"
    r"(?!.*--(?:mesh|kubernetes))[^:;,`]*$"
)
WIDTH_WITHOUT_TERMINAL = 100_000  # wider than any row, so that each row is one line in a pipe


def is_data(output: str) -> bool:
    """Return whether the output format is for programs: JSON or YAML."""
    return output in ("json", "yaml")


def counted(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def say(words: str) -> None:
    click.echo(words, err=True)


def from_here(text: str) -> str:
    """Return the text with each absolute path below the working directory made relative to the working directory."""
    try:
        here = str(Path.cwd())
    except OSError:  # the directory was removed
        return text
    return text.replace(f"{here}/", "") if here != "/" else text


def print_line(line: str) -> None:
    """Print a line for people on standard output, with paths relative to the working directory. On a terminal, a long
    line is wrapped between words, and its further lines are indented."""
    line = from_here(line)
    if not sys.stdout.isatty():
        click.echo(line)
        return
    width = max(shutil.get_terminal_size().columns, _NARROWEST)
    indent = len(line) - len(line.lstrip())
    further = " " * (indent + _HANGING)
    wrapped = textwrap.wrap(line, width, subsequent_indent=further, break_long_words=False, break_on_hyphens=False)
    click.echo("\n".join(wrapped))


def fail(what: str, hint: str, *, code: int = 1) -> NoReturn:
    """Print an error and a hint, and end the command. `hint` states what to do next; it is empty only if there is
    nothing to do. `code`: the exit code."""
    say(f"error: {_cut(what)}")
    for line in with_same_mesh(hint).splitlines():
        say(f"hint: {line}")
    raise Exit(code)


def remember_mesh(*flags: str) -> None:
    """Record the flags that chose the mesh of this command, for `with_same_mesh`."""
    context = click.get_current_context(silent=True)
    if context is not None:
        context.meta[_MESH_FLAGS] = flags  # shared by the contexts of the command and of its groups


def with_same_mesh(hint: str) -> str:
    """Return `hint` with flags such as `--mesh shop` added to each weft command at the end of a line: those that chose
    the mesh of this command. Without them, the suggested command could fail because several meshes run, or use another
    mesh."""
    context = click.get_current_context(silent=True)
    flags = context.meta.get(_MESH_FLAGS, ()) if context is not None else ()
    if not flags:
        return hint
    words = " ".join(shlex.quote(each) for each in flags)
    return "\n".join(f"{line} {words}" if _ENDS_WITH_COMMAND.search(line) else line for line in hint.splitlines())


def _cut(words: str) -> str:
    """Return the text with every word cut to at most `_LONGEST_WORD` letters; valid names are not longer."""
    return re.sub(rf"\S{{{_LONGEST_WORD + 1},}}", lambda match: f"{match[0][:_LONGEST_WORD]}…", words)


def fail_by(problem: Problem, *, code: int = 1) -> NoReturn:
    from weft.base.own_command import with_this_weft

    place = str(problem.where)
    fail(f"{place}: {problem.what}" if place else problem.what, with_this_weft(problem.hint), code=code)


@contextmanager
def trouble_is_no_answer() -> Iterator[None]:
    """Make errors inside the block end the command with exit code 2 instead of 1. For commands such as `weft diff`,
    1 is a regular result, and 2 means that there is no result."""
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
    """Print a value as JSON or YAML."""
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
    """Print a table. If standard output is not a terminal, the table has no colours, and each row is one line, however
    long."""
    from rich.console import Console

    if sys.stdout.isatty():
        Console(highlight=False).print(renderable)
        return
    console = Console(file=sys.stdout, highlight=False, width=WIDTH_WITHOUT_TERMINAL)
    for line in console.render_lines(renderable, pad=False):
        click.echo("".join(segment.text for segment in line if not segment.control).rstrip())
