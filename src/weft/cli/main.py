"""Where the `weft` command begins: the list of commands, in the order a newcomer meets them, and what every one shares.

An error that carries a problem is printed as one, with its hint; nobody who mistypes a name sees a traceback.
"""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

from weft.cli import control, demo, down, exec_, interception, logs, ps, status, up, validate, version
from weft.cli.output import fail


class Commands(TyperGroup):
    """In the order they were added, not the alphabet's; and with one way for all of them to fail."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.commands)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except Exception as error:
            problem = getattr(error, "problem", None)
            if problem is None:
                raise
            place = str(problem.where)
            fail(f"{place}: {problem.what}" if place else problem.what, problem.hint)


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
app.command("control")(control.control)
app.command(
    "interception",
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": ["--help"]},
)(interception.interception)
app.command("version")(version.version)


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
    app(prog_name="weft")


if __name__ == "__main__":
    main()
