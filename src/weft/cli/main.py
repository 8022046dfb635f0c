"""Where the `weft` command begins: what all commands share; `commands.py` lists them.

An error that carries a problem is printed as one, with its hint; nobody who mistypes a name sees a traceback.
"""

from __future__ import annotations

import os
from difflib import get_close_matches
from typing import Any

import typer
from typer.core import TyperGroup

from weft.cli.commands import COMMANDS, by_name, load
from weft.cli.output import fail
from weft.cli.root import with_this_weft

# Of commands that have four letters, `bogus` and `logs` are two thirds alike, and `exce` and `exec` three quarters.
_ALIKE = 0.7


class Commands(TyperGroup):
    """Those of `weft.cli.commands`, each loaded when it is called; and with one way for all of them to fail."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(by_name())

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in self.commands and (command := by_name().get(cmd_name)) is not None:
            self.commands[cmd_name] = load(command)
        return self.commands.get(cmd_name)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        width = max(len(command.name) for command in by_name().values())
        for heading, commands in COMMANDS.items():
            rows = [(command.name.ljust(width), command.line) for command in commands if not command.hidden]
            if rows:
                with formatter.section(heading):
                    formatter.write_dl(rows)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        known = self.get_command(ctx, args[0]) if args else None
        if args and known is None and not args[0].startswith("-"):
            near = get_close_matches(args[0], by_name(), n=1, cutoff=_ALIKE)
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


@app.callback(invoke_without_command=True)
def options(
    context: typer.Context,
    show_version: bool = typer.Option(False, "--version", help="Print the version and end."),
) -> None:
    if show_version:
        from weft.cli.version import print_here

        print_here()
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def main() -> None:
    # What gRPC's own C code writes, such as about an address that it cannot serve on, we say in words of our own.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    app(prog_name="weft")


if __name__ == "__main__":
    main()
