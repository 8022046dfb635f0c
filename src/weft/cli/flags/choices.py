"""Types of flags that take one of a few words. What was typed comes in, and leaves as the list has it, or the command
ends with the list. A value that fits nothing would otherwise look like an answer: there is none such."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

HIGHEST_PORT = 65_535


class OneOf(click.ParamType[str]):
    """One of these words, in whatever case it was typed; or nothing, for none."""

    name = "text"

    def __init__(self, *words: str) -> None:
        self._words = {word.lower(): word for word in words}

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not value:
            return ""
        if str(value).lower() not in self._words:
            self.fail(f"`{value}` is none of: {', '.join(self._words.values())}", param, ctx)
        return self._words[str(value).lower()]

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        return [CompletionItem(word) for word in self._words.values() if word.startswith(incomplete)]
