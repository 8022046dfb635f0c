"""The source that `weft proxy-config` reads: a pod's Envoy, on this machine or on a cluster, or a file with a dump.
Every command of the group has the same options to choose the source, and gets them as one `ProxySource`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import cached_property, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from weft.cli.flags import completions, shared
from weft.cli.print.output import fail, print_data

if TYPE_CHECKING:
    from weft.cli.reach.interface import MeshReach, PodProxy
    from weft.envoy.dump import Dump, DumpTable


class ProxySource:
    def __init__(
        self,
        target: str | None = None,
        namespace: str = "",
        file: str | None = None,
        mesh: str | None = None,
        kubernetes: bool = False,
        kubeconfig: Path | None = None,
        context: str | None = None,
        system: str = "istio-system",
    ) -> None:
        self.target, self.namespace, self.file = target or "", namespace, file
        self._mesh, self._kubernetes, self._kubeconfig, self._context = mesh, kubernetes, kubeconfig, context
        self._system = system
        self.called: tuple[str, ...] | None = None  # see `assume_calls`

    def check(self) -> None:
        """End the command unless exactly one of a pod and a file is given."""
        if bool(self.target) == (self.file is not None):
            what = "both a pod and a file are given" if self.target else "no pod is named"
            fail(what, "give one of them: weft proxy-config clusters POD, or --file DUMP", code=2)

    def assume_calls(self, hosts: tuple[str, ...], *, all_hosts: bool) -> None:
        """From now on, read the config that the proxy would have after a first call to `hosts` (with `all_hosts`, to
        all hosts), instead of the config that it has. Has no effect if neither is given."""
        if not hosts and not all_hosts:
            return
        if hosts and all_hosts:
            fail("--all includes every --host", "give one of them", code=2)
        if self.file is not None:
            what = "a dump contains the config that the proxy had; only a control plane knows what it would get"
            fail(what, "leave out --all and --host, or name a pod instead of --file", code=2)
        self.called = hosts

    @cached_property
    def reach(self) -> MeshReach:
        from weft.cli.reach.connect import reach

        return reach(
            self._mesh,
            kubernetes=self._kubernetes,
            kubeconfig=self._kubeconfig,
            context=self._context,
            system=self._system,
        )

    @cached_property
    def proxy(self) -> PodProxy:
        return self.reach.find(self.target, self.namespace)

    def config(self, kind: str) -> Dump:
        """Return one section of /config_dump; `kind` is its type, such as `ClustersConfigDump`. If a file lacks the
        section, the command ends: an absent section does not mean that the proxy has no such resources."""
        from weft.envoy.dump import MASKS

        dump = self._dump("/config_dump", {"mask": MASKS[kind]})
        if self.file is not None:
            dump.section(kind)
        return dump

    def everything(self) -> Dump:
        from weft.envoy.dump import BOOTSTRAP

        dump = self._dump("/config_dump", {"include_eds": "true"})
        if self.file is not None and not dump.document.get("configs"):
            dump.section(BOOTSTRAP)  # every dump has this section
        return dump

    def clusters(self) -> Dump:
        """Return Envoy's /clusters, which has the state of each endpoint."""
        return self._dump("/clusters", {"format": "json"})

    def close(self) -> None:
        if "reach" in self.__dict__:  # a connection was opened
            self.reach.close()

    def _dump(self, path: str, query: Mapping[str, str]) -> Dump:
        from weft.envoy.dump import read

        if self.called is not None:
            return read(self._first_call, where=str(self.proxy))
        if self.file is None:
            return read(self.reach.admin(self.proxy, path, query), where=str(self.proxy))
        return read(_contents(self.file), where=self.file)

    @cached_property
    def _first_call(self) -> bytes:
        import msgspec

        question = {"proxy": str(self.proxy), "hosts": self.called}
        return self.reach.ask("first_call", {"question": msgspec.json.encode(question).decode()})


_target = click.argument(
    "target",
    metavar="[TARGET]",
    required=False,
    help="POD, POD.NAMESPACE, deploy/NAME, or a workload's name; or give --file.",
    shell_complete=completions.pods,
)
_file = click.option(
    "-f", "--file", metavar="DUMP", help="Read this file instead: output of Envoy's admin API; - for stdin."
)


def with_source(command: Callable[..., None]) -> Callable[..., None]:
    """Add TARGET and the options that choose a source to a command. The command gets them as one argument `source`. If
    the command has the options `filters.host` and `filters.all_hosts`, their values are applied to the source, too, and
    not passed to the command."""

    @wraps(command)
    def run(
        target: str | None,
        namespace: str,
        file: str | None,
        mesh: str | None,
        kubernetes: bool,
        kubeconfig: Path | None,
        context: str | None,
        system: str,
        **arguments: Any,
    ) -> None:
        source = ProxySource(target, namespace, file, mesh, kubernetes, kubeconfig, context, system)
        if not arguments.get("selector"):  # a selector replaces TARGET
            source.check()
        source.assume_calls(arguments.pop("hosts", ()), all_hosts=arguments.pop("all_hosts", False))
        try:
            command(source=source, **arguments)
        finally:
            source.close()

    return _target(shared.namespace(_file(shared.which_mesh(shared.system(run)))))


print_whole = print_data  # as JSON or YAML


def print_rows(table: DumpTable, *, gap: int | None = None) -> None:
    from weft.cli.print.columns import GAP, lines

    click.echo("\n".join(lines(table.columns, table.rows, gap=GAP if gap is None else gap)))


def _contents(file: str) -> bytes:
    if file == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(file).read_bytes()
    except OSError as error:
        fail(f"{file} cannot be read: {error.strerror or error}", "--file takes the output of Envoy's admin API")
