"""Checks the directories given to `weft up` and `weft control`: the YAML of a mesh, and where its history is kept."""

from __future__ import annotations

from pathlib import Path

from weft.cli.print.output import fail


def refuse_without_directory(directory: Path) -> None:
    if not directory.is_dir():
        what = "is not a directory" if directory.exists() else "does not exist"
        fail(f"{directory} {what}", "give a directory of YAML files, or see the example: weft demo")


def past_directory(directory: Path | None) -> Path | None:
    """Create the directory for the history, accessible only to its owner, and return its absolute path; None if
    `directory` is None."""
    from weft.base.private_directory import NotPrivate, make_private

    if directory is None:
        return None
    try:
        make_private(directory)
    except (OSError, NotPrivate) as error:
        fail(str(error), "objects may be confidential: give a directory that does not exist yet, or one with mode 0700")
    return directory.absolute()


def name_of(directory: Path) -> str:
    """Return a name for a mesh, derived from the name of its directory."""
    import re

    plain = re.sub(r"[^a-z0-9]+", "-", directory.absolute().resolve().name.lower()).strip("-")
    return plain[:32].rstrip("-") or "mesh"
