"""Where the `weft` command begins: the list of commands, in the order a newcomer meets them, and what every one shares.

An error that carries a problem is printed as one, with its hint; nobody who mistypes a name sees a traceback.
"""

from __future__ import annotations

import os
from difflib import get_close_matches
from typing import Any

import typer
from typer.core import TyperGroup

from weft.cli import (
    analyze_,
    ca,
    control,
    crds,
    demo,
    down,
    exec_,
    experimental,
    install,
    interception,
    kube_export,
    kube_inject,
    logs,
    manifest,
    node,
    ps,
    status,
    uninstall,
    up,
    upgrade,
    validate,
    version,
)
from weft.cli.output import fail
from weft.cli.root import with_this_weft
from weft.cli.start import IN_PODS, run

# Of commands that have four letters, `bogus` and `logs` are two thirds alike, and `exce` and `exec` three quarters.
_ALIKE = 0.7


class Commands(TyperGroup):
    """In the order they were added, not the alphabet's; and with one way for all of them to fail."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.commands)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        known = self.get_command(ctx, args[0]) if args else None
        if args and known is None and not args[0].startswith("-"):
            near = get_close_matches(args[0], self.commands, n=1, cutoff=_ALIKE)
            hint = f"did you mean `{near[0]}`?" if near else "list them with: weft --help"
            fail(f"there is no command `{args[0]}`", hint, code=2)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except Exception as error:
            problem = getattr(error, "problem", None)
            if problem is None:
                raise
            place = str(problem.where)
            fail(f"{place}: {problem.what}" if place else problem.what, with_this_weft(problem.hint))


def in_pod(context: typer.Context) -> None:
    raise typer.Exit(run(context.info_name or "", context.args))


# Plain help, not rich's: it needs a fifth of a second less, and it can be grepped.
app = typer.Typer(
    name="weft",
    cls=Commands,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="A service mesh on your machine: Istio's YAML, stock Envoy, one command.",
    epilog="Begin with: weft demo",
)
app.command("demo")(demo.demo)
app.command("up")(up.up)
app.command("down")(down.down)
app.command("ps")(ps.ps)
app.command("status")(status.status)
app.command("logs")(logs.logs)
app.command("exec", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})(exec_.exec_)
app.command("validate")(validate.validate)
app.command("analyze")(analyze_.analyze)
app.command("kube-export")(kube_export.kube_export)
app.command("kube-inject")(kube_inject.kube_inject)
app.command("install")(install.install)
app.command("upgrade")(upgrade.upgrade)
app.command("uninstall")(uninstall.uninstall)
app.add_typer(manifest.app, name="manifest")
app.command("crds")(crds.crds)
app.add_typer(experimental.app, name="x")
app.command("control")(control.control)
app.command("node")(node.node)
app.add_typer(ca.app, name="ca")
app.command(
    "interception",
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": ["--help"]},
)(interception.interception)
app.command("version")(version.version)
for _name, _words in IN_PODS.items():
    # Usually not even started by way of this list; hidden, because nobody types them.
    app.command(
        _name,
        help=_words,
        hidden=True,
        add_help_option=False,
        context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    )(in_pod)


@app.callback(invoke_without_command=True)
def options(
    context: typer.Context,
    show_version: bool = typer.Option(False, "--version", help="Print the version and end."),
) -> None:
    if show_version:
        version.version()
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def main() -> None:
    # What gRPC's own C code writes, such as about an address that it cannot serve on, we say in words of our own.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    app(prog_name="weft")


if __name__ == "__main__":
    main()
