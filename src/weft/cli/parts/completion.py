"""Shell completion: `weft completion SHELL` prints what a shell is to read, and then the shell asks, at each press of a
key, by starting `weft` with $_WEFT_COMPLETE. Each parameter says what could come next
(`cli/flags/completions.py`).

Rule: nothing is said but candidates, and nobody waits for longer than two seconds, whoever does not answer.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import StrEnum
from typing import Any, NoReturn

import typer

ASKED = "_WEFT_COMPLETE"
_PATIENCE = 2.0  # seconds
# What a shell would take for something else than a letter of a word.
_SPECIAL = frozenset("|&;<>()$`\\\"' \t*?[]#~!{}")


class Shell(StrEnum):
    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(shell: Shell = typer.Argument(..., help="Whose: bash, zsh or fish.")) -> None:
    """Print what a shell reads to complete commands, flags and names. weft --install-completion puts it where the
    shell of this terminal finds it.

    \b
    Example: weft completion bash > ~/.local/share/bash-completion/completions/weft
             weft completion zsh > "${fpath[1]}/_weft"
             weft completion fish > ~/.config/fish/completions/weft.fish
    """
    from typer import completion as typers

    script: Any = typers.get_completion_script  # type: ignore[attr-defined]
    typer.echo(script(prog_name="weft", complete_var=ASKED, shell=shell.value))


def answer(app: typer.Typer) -> NoReturn:
    """To a shell that asks."""
    status = 0
    with _silence(), _limit(), suppress(Exception, _TooLongError):
        try:
            command = typer.main.get_command(app)
            _speak()
            command(prog_name="weft", complete_var=ASKED)
        except SystemExit as ended:
            status = ended.code if isinstance(ended.code, int) else 0
    sys.exit(status)


class _TooLongError(BaseException):
    """Not an Exception: whoever looks for candidates takes those for nobody's answer, and would go on."""


@contextmanager
def _limit() -> Iterator[None]:
    import signal

    def end(*_: Any) -> NoReturn:
        raise _TooLongError

    signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, _PATIENCE)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


@contextmanager
def _silence() -> Iterator[None]:
    """Also what C code and children would say: it would stand in the middle of what somebody types."""
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def _speak() -> None:
    """As typer does, but words that mean something to bash are made harmless, and to describe a command takes no rich:
    our words have no markup."""
    from typer import completion as typers

    known: Any = typers.shell_completion  # type: ignore[attr-defined]
    usual: Any = known.get_completion_class(Shell.BASH.value)

    class Bash(usual):  # type: ignore[misc]
        def format_completion(self, item: Any) -> str:
            return _escaped(str(item.value), os.environ.get("COMP_WORDS", ""))

    known.add_completion_class(Bash, Shell.BASH.value)
    vars(sys.modules[usual.__module__])["_sanitize_help_text"] = str


def _escaped(value: str, typed: str) -> str:
    """Unless somebody has begun to quote, in which case the shell takes it as it is."""
    if typed.rpartition("\n")[2].startswith(("'", '"')):
        return value
    return "".join(f"\\{letter}" if letter in _SPECIAL else letter for letter in value)
