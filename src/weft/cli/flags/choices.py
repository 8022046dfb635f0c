"""Which values a flag takes, where they are few: what was typed comes in, and leaves as the list has it, or the command
ends with the list. A value that fits nothing would otherwise look like an answer: there is none such."""

from __future__ import annotations

from collections.abc import Callable

import typer

HIGHEST_PORT = 65_535


def one_of(*words: str) -> Callable[[str], str]:
    """For `callback` of an option; in whatever case it was typed, and nothing for none."""
    known = {word.lower(): word for word in words}

    def chosen(value: str) -> str:
        if not value:
            return value
        if value.lower() not in known:
            raise typer.BadParameter(f"`{value}` is none of: {', '.join(words)}")
        return known[value.lower()]

    return chosen
