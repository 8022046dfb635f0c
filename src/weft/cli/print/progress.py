"""Prints the progress of a long command on standard error, and asks the user for confirmation before a command
changes anything."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from weft.cli.print.output import fail, say


def confirm(question: str, *, yes: bool) -> None:
    """Ask the user to confirm `question`, and end the command if the answer is no. With `yes` (the flag -y), return
    at once without asking."""
    if yes:
        return
    if not sys.stdin.isatty():
        fail("stdin is not a terminal, so this cannot be confirmed", "pass -y", code=2)
    if not click.confirm(question, err=True):
        fail("nothing was changed", "")


class Progress:
    """Shows progress: on a terminal one line that changes, elsewhere a new line for each step."""

    def __init__(self, status: Any) -> None:
        self._status = status
        self._before = ""

    def now(self, words: str) -> None:
        if self._status is not None:
            self._status.update(words)
        elif words != self._before:
            say(words)
        self._before = words


@contextmanager
def progress() -> Iterator[Progress]:
    if not sys.stderr.isatty():
        yield Progress(None)
        return
    from rich.console import Console

    with Console(stderr=True, highlight=False).status("") as status:
        yield Progress(status)
