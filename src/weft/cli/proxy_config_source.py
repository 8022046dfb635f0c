"""Whom `weft proxy-config` asks: a pod's Envoy, wherever its mesh is, or a file that somebody kept. Every command of
the group has the same flags for that; it gets them as one `Source`."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from weft.cli import candidates
from weft.cli.cluster import CONTEXT, KUBECONFIG
from weft.cli.output import fail, print_data
from weft.cli.reach import KUBERNETES, MESH, NAMESPACE, SYSTEM

if TYPE_CHECKING:
    from weft.cli.reach import Proxy, Reach
    from weft.envoy.dump import Dump, DumpTable


class Output(StrEnum):
    SHORT = "short"
    TABLE = "table"  # the same
    JSON = "json"
    YAML = "yaml"


OUTPUT = typer.Option(
    Output.SHORT,
    "-o",
    "--output",
    help="short (table is the same): a line for each; json or yaml: all that Envoy says.",
)
TARGET = typer.Argument(
    None,
    metavar="TARGET",
    help="POD, POD.NAMESPACE, deploy/NAME, or a workload's name; or give --file.",
    autocompletion=candidates.pods,
)
FILE = typer.Option(
    None, "-f", "--file", metavar="DUMP", help="Read this instead: what Envoy's admin API said. - is standard input."
)


class Source:
    def __init__(
        self,
        target: str | None = TARGET,
        namespace: str = NAMESPACE,
        file: str | None = FILE,
        mesh: str | None = MESH,
        kubernetes: bool = KUBERNETES,
        kubeconfig: Path | None = KUBECONFIG,
        context: str | None = CONTEXT,
        system: str = SYSTEM,
    ) -> None:
        self.target, self.namespace, self.file = target or "", namespace, file
        self._mesh, self._kubernetes, self._kubeconfig, self._context = mesh, kubernetes, kubeconfig, context
        self._system = system

    def check(self) -> None:
        """That it says whom to ask."""
        if bool(self.target) == (self.file is not None):
            what = "a pod is named, and a file" if self.target else "no pod is named"
            fail(what, "give one of them: weft proxy-config clusters POD, or --file DUMP", code=2)

    @cached_property
    def reach(self) -> Reach:
        from weft.cli.reach import reach

        return reach(
            self._mesh,
            kubernetes=self._kubernetes,
            kubeconfig=self._kubeconfig,
            context=self._context,
            system=self._system,
        )

    @cached_property
    def proxy(self) -> Proxy:
        return self.reach.find(self.target, self.namespace)

    def config(self, kind: str) -> Dump:
        """One section of /config_dump. A file without it is another's, and not a proxy that has nothing."""
        from weft.envoy.dump import MASKS

        dump = self._dump("/config_dump", {"mask": MASKS[kind]})
        if self.file is not None:
            dump.section(kind)
        return dump

    def everything(self) -> Dump:
        from weft.envoy.dump import BOOTSTRAP

        dump = self._dump("/config_dump", {"include_eds": "true"})
        if self.file is not None and not dump.document.get("configs"):
            dump.section(BOOTSTRAP)  # which every dump has
        return dump

    def clusters(self) -> Dump:
        """What /clusters says of each endpoint."""
        return self._dump("/clusters", {"format": "json"})

    def close(self) -> None:
        if "reach" in self.__dict__:  # somebody was asked
            self.reach.close()

    def _dump(self, path: str, query: Mapping[str, str]) -> Dump:
        from weft.envoy.dump import read

        if self.file is None:
            return read(self.reach.admin(self.proxy, path, query), where=str(self.proxy))
        return read(_contents(self.file), where=self.file)


def with_source(command: Callable[..., None]) -> Callable[..., None]:
    """The command with a source's flags before its own."""
    shared = list(inspect.signature(Source, eval_str=True).parameters.values())
    own = [each for each in inspect.signature(command, eval_str=True).parameters.values() if each.name != "source"]

    def run(**arguments: Any) -> None:
        source = Source(**{each.name: arguments.pop(each.name) for each in shared})
        if not arguments.get("selector"):  # which is in the place of a pod
            source.check()
        try:
            command(source=source, **arguments)
        finally:
            source.close()

    parameters = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in (*shared, *own)]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    run.__doc__ = command.__doc__
    return run


print_whole = print_data  # as JSON or YAML


def print_rows(table: DumpTable, *, gap: int | None = None) -> None:
    from weft.cli.columns import GAP, lines

    typer.echo("\n".join(lines(table.columns, table.rows, gap=GAP if gap is None else gap)))


def _contents(file: str) -> bytes:
    if file == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(file).read_bytes()
    except OSError as error:
        fail(f"{file} cannot be read: {error.strerror or error}", "--file takes what Envoy's admin API said")
