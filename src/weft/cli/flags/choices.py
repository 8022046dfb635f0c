"""Types of options that accept one of a few words. They return the typed word in the spelling of the list. A word that
is not in the list ends the command and prints the list: as a filter it would match nothing, which looks like a
result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

HIGHEST_PORT = 65_535


class OneOf(click.ParamType[str]):
    """One of `words`, typed in any case, or the empty string for no choice."""

    name = "text"

    def __init__(self, *words: str) -> None:
        self._words = {word.lower(): word for word in words}

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not value:
            return ""
        if str(value).lower() not in self._words:
            self.fail(f"`{value}` is not one of: {', '.join(self._words.values())}", param, ctx)
        return self._words[str(value).lower()]

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        return [CompletionItem(word) for word in self._words.values() if word.startswith(incomplete)]
