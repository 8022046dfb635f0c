"""What a command is before it is loaded: a line in a list. And a group of them, whose own are loaded when they are
called: what a command needs is paid for by those who call it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import Any, NamedTuple

import typer
from typer.main import get_command

from weft.cli.flags.boolean_values import PlainCommand, PlainGroup
from weft.cli.print.output import fail

# Of commands that have four letters, `bogus` and `logs` are two thirds alike, and `exce` and `exec` three quarters.
_ALIKE = 0.7


class Command(NamedTuple):
    name: str
    where: str  # module:function, or module:GROUP of one that has commands of its own
    line: str  # the first sentence of its help
    settings: Mapping[str, Any] = {}
    hidden: bool = False


class Group(NamedTuple):
    """A command that has commands of its own."""

    help: str
    epilog: str
    commands: tuple[Command, ...]
    aliases: Mapping[str, str] = {}  # other names, which no list shows


def load(command: Command) -> Any:
    """The command itself, in the parser's form."""
    module, _, attribute = command.where.partition(":")
    found = getattr(import_module(f"weft.cli.{module}"), attribute)
    if isinstance(found, Group):
        return Commands(command.name, found)
    # Plain help, not rich's: it needs a fifth of a second less, and it can be grepped.
    alone = typer.Typer(rich_markup_mode=None, add_completion=False)
    alone.command(
        command.name,
        cls=PlainCommand,
        help=command.line if command.hidden else None,
        hidden=command.hidden,
        add_help_option=not command.hidden,
        context_settings=dict(command.settings),
    )(found)
    made = get_command(alone)
    made.name = command.name
    return made


class Listed(PlainGroup):
    """Commands that are loaded when they are called. `weft` itself has its own under headings."""

    @abstractmethod
    def listed(self) -> Mapping[str, tuple[Command, ...]]:
        """By what a person wants."""

    def aliases(self) -> Mapping[str, str]:
        return {}

    def list_commands(self, ctx: Any) -> list[str]:
        return [command.name for command in self._every()]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        name = self.aliases().get(cmd_name, cmd_name)
        if name not in self.commands:
            command = next((each for each in self._every() if each.name == name), None)
            if command is not None:
                self.commands[name] = load(command)
        return self.commands.get(name)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        width = max(len(command.name) for command in self._every())
        for heading, commands in self.listed().items():
            rows = [(command.name.ljust(width), command.line) for command in commands if not command.hidden]
            if rows:
                with formatter.section(heading):
                    formatter.write_dl(rows)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        known = self.get_command(ctx, args[0]) if args else None
        if args and known is None and not args[0].startswith("-") and not ctx.resilient_parsing:
            near = get_close_matches(args[0], self.list_commands(ctx), n=1, cutoff=_ALIKE)
            hint = f"did you mean `{near[0]}`?" if near else f"list them with: {ctx.command_path} --help"
            fail(f"there is no command `{args[0]}`", hint, code=2)
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """From the list: to describe them all would mean to load them all."""
        from typer.completion import shell_completion  # type: ignore[attr-defined]

        if getattr(ctx, "_protected_args", None):  # there is a command already, and it is none of ours
            return []
        if incomplete.startswith("-"):
            return [each for each in super().shell_complete(ctx, incomplete) if each.value.startswith("-")]
        return [
            shell_completion.CompletionItem(command.name, help=command.line)
            for command in self._every()
            if command.name.startswith(incomplete) and not command.hidden
        ]

    def _every(self) -> Iterable[Command]:
        return (command for commands in self.listed().values() for command in commands)


class Commands(Listed):
    """Those of a group."""

    def __init__(self, name: str, group: Group) -> None:
        super().__init__(
            name=name, help=group.help, epilog=group.epilog, no_args_is_help=True, rich_markup_mode=None, commands={}
        )
        self._group = group

    def listed(self) -> Mapping[str, tuple[Command, ...]]:
        return {"Commands": self._group.commands}

    def aliases(self) -> Mapping[str, str]:
        return self._group.aliases
