"""click groups that import a command only when it is called, so that each command pays only for its own imports. A
command that is not imported yet is a `Listing`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from weft.cli.flags.boolean_values import without_values
from weft.cli.print.output import fail

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

# Minimum similarity of a suggested name: `bogus` and `logs` are two thirds alike, `exce` and `exec` three quarters.
_ALIKE = 0.7
_UNKNOWN = "weft.cli.unknown_command"  # key in a context's `meta`: shell completion met an unknown command


class Listing(NamedTuple):
    """One command of a group, before its module is imported: its `name`, where it is implemented (`where`:
    MODULE:ATTRIBUTE below `weft.cli`), its `line` of help, and whether the help leaves it out (`hidden`)."""

    name: str
    where: str  # module:attribute, below weft.cli
    line: str  # the first sentence of the command's help
    hidden: bool = False


def load(listing: Listing) -> click.Command:
    module, _, attribute = listing.where.partition(":")
    command: click.Command = getattr(import_module(f"weft.cli.{module}"), attribute)
    return command


class LazyGroup(click.Group):
    """A click group that lists its commands under headings and imports each command on first use. `aliases` maps
    further names to commands; the help does not show them."""

    def __init__(
        self,
        name: str | None = None,
        *,
        listings: Mapping[str, tuple[Listing, ...]] | None = None,
        aliases: Mapping[str, str] | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(name, no_args_is_help=True, **settings)
        self.listings = listings or {}
        self._aliases = aliases or {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [listing.name for listing in self._every()]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        name = self._aliases.get(cmd_name, cmd_name)
        if name not in self.commands:
            listing = next((each for each in self._every() if each.name == name), None)
            if listing is not None:
                self.commands[name] = load(listing)
        return self.commands.get(name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max((len(listing.name) for listing in self._every()), default=0)
        for heading, listings in self.listings.items():
            rows = [(listing.name.ljust(width), listing.line) for listing in listings if not listing.hidden]
            if rows:
                with formatter.section(heading):
                    formatter.write_dl(rows)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        named = self.get_command(ctx, args[0])
        if named is None and ctx.resilient_parsing:
            ctx.meta[_UNKNOWN] = True
        elif named is None and not args[0].startswith("-"):
            near = get_close_matches(args[0], self.list_commands(ctx), n=1, cutoff=_ALIKE)
            hint = f"did you mean `{near[0]}`?" if near else f"list them with: {ctx.command_path} --help"
            fail(f"there is no command `{args[0]}`", hint, code=2)
        name, command, rest = super().resolve_command(ctx, args)
        return name, command, rest if command is None else without_values(command, ctx, rest)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete command names from the listings. The commands' own help texts are not used: that would import all of
        them."""
        from click.shell_completion import CompletionItem

        if ctx.meta.get(_UNKNOWN):
            return []
        if incomplete.startswith("-"):
            return click.Command.shell_complete(self, ctx, incomplete)
        return [
            CompletionItem(listing.name, help=listing.line)
            for listing in self._every()
            if listing.name.startswith(incomplete) and not listing.hidden
        ]

    def _every(self) -> Iterable[Listing]:
        return (listing for listings in self.listings.values() for listing in listings)
