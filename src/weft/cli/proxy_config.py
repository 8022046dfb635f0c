"""`weft proxy-config`, as the list of commands knows it: a name, and what each of its commands may be called too. They
themselves are loaded when one of them is wanted: their many flags would cost every other command its speed."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

ALIASES = {
    "listeners": ("listener", "l"),
    "routes": ("route", "r"),
    "clusters": ("cluster", "c"),
    "endpoints": ("endpoint", "ep", "e"),
    "secret": ("secrets", "s"),
    "bootstrap": ("b",),
    "log": ("o",),
    "all": ("a",),
}
_MEANT = {alias: name for name, aliases in ALIASES.items() for alias in aliases}


class Group(TyperGroup):
    def list_commands(self, ctx: Any) -> list[str]:
        return list(ALIASES)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        name = _MEANT.get(cmd_name, cmd_name)
        if name not in ALIASES:
            return None
        if not self.commands:
            from weft.cli.proxy_config_commands import app as loaded

            made: Any = typer.main.get_command(loaded)
            self.commands.update(made.commands)
        return self.commands[name]


app = typer.Typer(
    cls=Group,
    rich_markup_mode=None,
    no_args_is_help=True,
    help="What a pod's Envoy has: listeners, routes, clusters and more. Also called pc.",
    epilog="Example: weft proxy-config clusters payments-v1",
)
