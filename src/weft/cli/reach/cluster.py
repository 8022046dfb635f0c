"""What every command that speaks to a cluster shares: which cluster that is, which values an installation has, and how
its progress is told."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from weft.cli.flags import completions
from weft.cli.print.output import fail, say

if TYPE_CHECKING:
    from collections.abc import Iterator

    from weft.install.values import Values
    from weft.kube.client import Client

KUBECONFIG = typer.Option(None, "--kubeconfig", help="Which kubeconfig; else $KUBECONFIG, else ~/.kube/config.")
CONTEXT = typer.Option(
    None, "--context", help="Which context of it, if not the current one.", autocompletion=completions.contexts
)
FILES = typer.Option([], "-f", "--values", help="A file of values, or - for standard input; the last one wins.")
ASSIGNMENTS = typer.Option([], "--set", help="One value, such as control.replicas=3; wins over files.")
REVISION = typer.Option("", "--revision", "-r", help="The revision's name, to have several side by side.")


def chosen(files: list[str], assignments: list[str], revision: str) -> Values:
    """What was given, if it can be: the injector reads its part here as it will in the cluster."""
    import msgspec

    from weft.inject.settings import read
    from weft.install.namespace import injector_settings
    from weft.install.overrides import read_values

    texts = [(name, _text(name)) for name in files]
    values = read_values(texts, [*assignments, *([f"revision={revision}"] if revision else [])])
    read(msgspec.json.encode(injector_settings(values)), named="injection.settings")
    return values


def client(kubeconfig: Path | None, context: str | None) -> Client:
    from weft.kube.client import Client
    from weft.kube.config import load

    return Client(load(kubeconfig, context))


def confirm(question: str, *, yes: bool) -> None:
    """Ends the command unless somebody agrees. A script must have said so before."""
    if yes:
        return
    if not sys.stdin.isatty():
        fail("nobody is there to be asked", "say yes beforehand: -y", code=2)
    if not typer.confirm(question, err=True):
        fail("nothing was changed", "")


class Progress:
    """One line that changes, on a terminal; elsewhere a line for each thing that happened."""

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


def _text(name: str) -> str:
    if name == "-":
        return sys.stdin.read()
    try:
        return Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        fail(f"{name} cannot be read: {getattr(error, 'strerror', '') or error}", "give a file of YAML: -f values.yaml")
