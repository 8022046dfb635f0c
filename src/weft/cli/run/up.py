"""`weft up`: run the mesh of a directory, in the foreground with a live view or, detached, in the background."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from weft.local.identities import Trust


def up(
    directory: Path = typer.Argument(Path(), help="A directory of YAML; the current one if none is given."),
    name: str | None = typer.Option(None, "--name", help="The mesh's name; the directory's name if none is given."),
    detach: bool = typer.Option(False, "--detach", "-d", help="Go on in the background once all pods are ready."),
    patience: float = typer.Option(60.0, "--patience", help="With --detach: seconds to wait for all pods."),
    no_live: bool = typer.Option(False, "--no-live", help="Plain lines instead of the live view."),
    ca: Path | None = typer.Option(
        None, "--ca", help="A directory that keeps the mesh's CA, or has one; by default it ends with the mesh."
    ),
    certificate_ttl: str = typer.Option("24h", "--certificate-ttl", help="How long a pod's certificate lives."),
    history: Path | None = typer.Option(
        None, "--history", help="A directory that keeps what weft history shows; by default it ends with the mesh."
    ),
) -> None:
    """Run the mesh of a directory. Files may be edited while it runs; Ctrl-C ends it and leaves nothing behind.

    \b
    Example: weft up examples/shop
             weft up . --name shop --detach
             weft up . --ca ~/.weft/ca --certificate-ttl 1h
    """
    refuse_without_directory(directory)  # at once: the rest takes a second to load
    from weft.cli.run.foreground import refuse_what_cannot_run, run_foreground

    name = name or name_of(directory)
    trust = _trust(ca, certificate_ttl)
    if detach:
        from weft.cli.run.background import run_background

        refuse_what_cannot_run(directory, trust)
        run_background(directory, name=name, patience=patience, trust=trust, history=past_directory(history))
    else:
        run_foreground(directory, name=name, live=not no_live, trust=trust, history=past_directory(history))


def refuse_without_directory(directory: Path) -> None:
    from weft.cli.print.output import fail

    if not directory.is_dir():
        what = "is not a directory" if directory.exists() else "does not exist"
        fail(f"{directory} {what}", "give a directory of YAML files, or see the example: weft demo")


def past_directory(directory: Path | None) -> Path | None:
    """A directory for it that is its owner's alone."""
    from weft.base.private_directory import NotPrivate, make_private
    from weft.cli.print.output import fail

    if directory is None:
        return None
    try:
        make_private(directory)
    except (OSError, NotPrivate) as error:
        fail(str(error), "what objects say may not be for everybody: give a directory that is not there yet, or 0700")
    return directory.absolute()


def _trust(ca: Path | None, certificate_ttl: str) -> Trust:
    from weft.cli.flags.duration import duration_of
    from weft.cli.print.output import fail
    from weft.local.identities import LONGEST_TTL, SHORTEST_TTL, Trust

    ttl = duration_of(certificate_ttl, "--certificate-ttl 24h")
    if not SHORTEST_TTL <= ttl <= LONGEST_TTL:
        hint = "for example: --certificate-ttl 24h"
        fail(f"a certificate lives from {SHORTEST_TTL.seconds} s to {LONGEST_TTL.days} days", hint, code=2)
    return Trust(ca.absolute() if ca else None, ttl)


def name_of(directory: Path) -> str:
    """The directory's own name, as far as it can be a mesh's."""
    import re

    plain = re.sub(r"[^a-z0-9]+", "-", directory.absolute().resolve().name.lower()).strip("-")
    return plain[:32].rstrip("-") or "mesh"
