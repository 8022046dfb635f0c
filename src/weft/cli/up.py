"""`weft up`: run the mesh of a directory, in the foreground with a live view or, detached, in the background."""

from __future__ import annotations

from pathlib import Path

import typer


def up(
    directory: Path = typer.Argument(Path(), help="A directory of YAML; the current one if none is given."),
    name: str | None = typer.Option(None, "--name", help="The mesh's name; the directory's name if none is given."),
    detach: bool = typer.Option(False, "--detach", "-d", help="Go on in the background once all pods are ready."),
    patience: float = typer.Option(60.0, "--patience", help="With --detach: seconds to wait for all pods."),
    no_live: bool = typer.Option(False, "--no-live", help="Plain lines instead of the live view."),
) -> None:
    """Run the mesh of a directory. Files may be edited while it runs; Ctrl-C ends it and leaves nothing behind.

    \b
    Example: weft up examples/shop
             weft up . --name shop --detach
    """
    from weft.cli.foreground import refuse_what_cannot_run, run_foreground

    name = name or name_of(directory)
    if detach:
        from weft.cli.background import run_background

        refuse_what_cannot_run(directory)
        run_background(directory, name=name, patience=patience)
    else:
        run_foreground(directory, name=name, live=not no_live)


def name_of(directory: Path) -> str:
    """The directory's own name, as far as it can be a mesh's."""
    import re

    plain = re.sub(r"[^a-z0-9]+", "-", directory.absolute().resolve().name.lower()).strip("-")
    return plain[:32].rstrip("-") or "mesh"
