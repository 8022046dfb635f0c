"""The root of the `weft` command line: global options, and one format for the errors of all commands. `commands.py`
lists the commands.

An exception with a `problem` is printed as that problem with its hint, and a mistyped option as an error with a hint.
Neither shows a traceback.
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
    """The group of all commands in `weft.cli.commands`. It prints the errors of every command in the same format."""

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
    """Print a usage error in the same format as every other error, and exit with 2."""
    from weft.cli.flags.istioctl_flags import instead_of

    if isinstance(error, NoArgsIsHelpError):  # its message is the help text
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
    aliases={"experimental": "x"},  # istioctl's name for this group
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
    if os.environ.get("NO_COLOR"):  # https://no-color.org; rich applies it to tables
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
    # Silence gRPC's C library. weft reports the same errors, such as an address that cannot be bound, in its own
    # messages.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    if "_WEFT_COMPLETE" in os.environ:  # a shell requests completions
        from weft.cli.parts.completion import answer

        answer(app)
    app(prog_name="weft")


if __name__ == "__main__":
    main()
