"""Where the `weft` command begins: what all commands share; `commands.py` lists them.

An error that carries a problem is printed as one, with its hint; nobody who mistypes a name sees a traceback.
"""

from __future__ import annotations

import os
from typing import Any, NoReturn

import click
from click.exceptions import Exit, NoArgsIsHelpError

from weft.cli.commands import COMMANDS
from weft.cli.lazy_commands import LazyGroup
from weft.cli.print.output import fail, fail_by


class RootGroup(LazyGroup):
    """The commands of `weft.cli.commands`, with one way for all of them to fail."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            _explain(error, ctx)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            _explain(error, ctx)
        except Exception as error:
            problem = getattr(error, "problem", None)
            if problem is None:
                raise
            from weft.base.ambiguous import Ambiguous

            fail_by(problem, code=2 if isinstance(error, Ambiguous) else 1)


def _explain(error: click.UsageError, ctx: click.Context) -> NoReturn:
    """Print a usage error in the form of every other error."""
    from weft.cli.flags.istioctl_flags import instead_of

    if isinstance(error, NoArgsIsHelpError):  # whose message is the help
        raise error
    what, hint = error.format_message().rstrip("."), ""
    if isinstance(error, click.NoSuchOption):
        near = f" (Possible options: {', '.join(error.possibilities)})" if error.possibilities else ""
        what, hint = f"no such option: {error.option_name}{near}", instead_of(error.option_name)
    command = error.ctx.command_path if error.ctx else f"{ctx.command_path} {ctx.invoked_subcommand or ''}".rstrip()
    fail(f"{what[:1].lower()}{what[1:]}", hint or f"see: {command} --help", code=2)


@click.group(
    "weft",
    cls=RootGroup,
    listings=COMMANDS,
    aliases={"experimental": "x"},  # as istioctl has it
    invoke_without_command=True,
    subcommand_metavar="COMMAND [ARGS]...",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="A service mesh on your machine: Istio's YAML, stock Envoy, one command.",
    epilog="Begin with: weft demo",
)
@click.option("--version", "show_version", is_flag=True, help="Print the version and exit.")
@click.option("--install-completion", is_flag=True, help="Install completion for the current shell.")
@click.pass_context
def app(context: click.Context, show_version: bool, install_completion: bool) -> None:
    if os.environ.get("NO_COLOR"):  # https://no-color.org; for tables rich obeys it by itself
        context.color = False
    if show_version:
        from weft.cli.parts.version import print_here

        print_here()
        raise Exit
    if install_completion:
        from weft.cli.parts.completion import install

        install(app)
        raise Exit


def main() -> None:
    # What gRPC's own C code writes, such as about an address that it cannot serve on, we say in words of our own.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    if "_WEFT_COMPLETE" in os.environ:  # a shell asks what could come next
        from weft.cli.parts.completion import answer

        answer(app)
    app(prog_name="weft")


if __name__ == "__main__":
    main()
