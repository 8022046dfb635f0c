"""The type of options that accept one of a few words, in upper or lower case. Its value is the word as it is spelled in
the list of accepted words. A word that is not in the list ends the command, and the list is printed: a misspelled
filter would match nothing, and the empty output would look like a result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

HIGHEST_PORT = 65_535


class OneOf(click.ParamType[str]):
    """An option's type that accepts one of `words` in upper or lower case. The empty string is accepted too, and
    means that nothing was chosen."""

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
