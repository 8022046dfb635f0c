"""The error of a failed image build, and the function that runs external programs and raises it with their output."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path


class ImageError(Exception):
    """The image could not be built; the message states why and what to do next."""


def run(
    command: Sequence[str | Path],
    *,
    hint: str,
    directory: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> str:
    """Run a program and return its standard output. Raise `ImageError` with `hint` if the program is missing or
    fails."""
    try:
        done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise ImageError(f"the program `{command[0]}` is missing; {hint}") from error
    if done.returncode != 0:
        words = " ".join(str(word) for word in command[:3])
        raise ImageError(f"`{words} …` failed; {hint}\n{done.stderr.strip() or done.stdout.strip()}")
    return done.stdout
