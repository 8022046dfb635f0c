"""Where the `weft` command begins: what all commands share; `commands.py` lists them.

An error that carries a problem is printed as one, with its hint; nobody who mistypes a name sees a traceback.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NoReturn

import typer

from weft.cli.commands import COMMANDS
from weft.cli.lazy_commands import Command, Listed
from weft.cli.print.output import fail, fail_by

_UsageError: Any = typer.BadParameter.__base__  # of which that is one


class Commands(Listed):
    """Those of `weft.cli.commands`, with one way for all of them to fail."""

    def listed(self) -> Mapping[str, tuple[Command, ...]]:
        return COMMANDS

    def aliases(self) -> Mapping[str, str]:
        return {"experimental": "x"}  # as istioctl has it

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except _UsageError as error:
            _explain(error, ctx)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except _UsageError as error:
            _explain(error, ctx)
        except Exception as error:
            problem = getattr(error, "problem", None)
            if problem is None:
                raise
            from weft.base.ambiguous import Ambiguous

            fail_by(problem, code=2 if isinstance(error, Ambiguous) else 1)


def _explain(error: Any, ctx: Any) -> NoReturn:
    """What makes no sense on a command line, told as every other error."""
    from weft.cli.flags.istioctl_flags import instead_of

    said = error.format_message().rstrip(".").replace(": Value error, ", ": ")  # whose error it was is no help
    if not said or type(error).__name__ == "NoArgsIsHelpError":  # whose message is the help
        raise error
    command = error.ctx.command_path if error.ctx else f"{ctx.command_path} {ctx.invoked_subcommand or ''}".rstrip()
    hint = instead_of(getattr(error, "option_name", "")) or f"see: {command} --help"
    fail(f"{said[0].lower()}{said[1:]}", hint, code=2)


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
    if os.environ.get("NO_COLOR"):  # https://no-color.org; for tables rich obeys it by itself
        context.color = False
    if show_version:
        from weft.cli.parts.version import print_here

        print_here()
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def main() -> None:
    # What gRPC's own C code writes, such as about an address that it cannot serve on, we say in words of our own.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    if "_WEFT_COMPLETE" in os.environ:  # a shell asks what could come next
        from weft.cli.parts.completion import answer

        answer(app)
    app(prog_name="weft")


if __name__ == "__main__":
    main()
