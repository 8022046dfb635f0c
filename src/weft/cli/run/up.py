"""`weft up`: runs the mesh of a directory, in the foreground with a live view, or in the background with `--detach`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from weft.cli.flags import shared

if TYPE_CHECKING:
    from weft.local.identities import Trust


@click.command()
@click.argument(
    "directory",
    type=click.Path(path_type=Path),
    default=Path(),
    help="A directory of YAML; default: the current one.",
)
@click.option("--name", help="The mesh's name; default: the directory's name.")
@click.option("--detach", "-d", is_flag=True, help="Continue in the background once all pods are ready.")
@click.option(
    "--patience",
    type=float,
    default=60.0,
    show_default=True,
    help="With --detach: seconds to wait for the next pod to become ready.",
)
@shared.no_live
@click.option(
    "--ca",
    type=click.Path(path_type=Path),
    help="A directory that contains a CA, or in which one is created; by default the CA ends with the mesh.",
)
@click.option("--certificate-ttl", default="24h", show_default=True, help="The lifetime of a pod's certificate.")
@click.option(
    "--history",
    type=click.Path(path_type=Path),
    help="A directory that keeps the history across restarts; by default the history ends with the mesh.",
)
@click.option(
    "--egress",
    is_flag=True,
    help="Let pods reach TCP hosts outside the mesh; by default they have no way out.",
)
def up(
    directory: Path,
    name: str | None,
    detach: bool,
    patience: float,
    no_live: bool,
    ca: Path | None,
    certificate_ttl: str,
    history: Path | None,
    egress: bool,
) -> None:
    """Run the mesh of a directory. Files may be edited while the mesh runs. Ctrl-C ends it and leaves nothing behind.

    \b
    Example: weft up examples/shop
             weft up . --name shop --detach
             weft up . --ca ~/.weft/ca --certificate-ttl 1h
             weft up . --egress
    """
    from weft.cli.run.directories import name_of, past_directory, refuse_without_directory

    refuse_without_directory(directory)  # first, because the imports below take a second
    from weft.cli.run.foreground import refuse_what_cannot_run, run_foreground

    name = name or name_of(directory)
    trust, past = _trust(ca, certificate_ttl), past_directory(history)
    if detach:
        from weft.cli.run.background import run_background

        refuse_what_cannot_run(directory, trust)
        run_background(directory, name=name, patience=patience, trust=trust, history=past, egress=egress)
    else:
        run_foreground(directory, name=name, live=not no_live, trust=trust, history=past, egress=egress)


def _trust(ca: Path | None, certificate_ttl: str) -> Trust:
    from weft.cli.flags.duration import duration_of
    from weft.cli.print.output import fail
    from weft.local.identities import LONGEST_TTL, SHORTEST_TTL, Trust

    ttl = duration_of(certificate_ttl, "--certificate-ttl 24h")
    if not SHORTEST_TTL <= ttl <= LONGEST_TTL:
        hint = "for example: --certificate-ttl 24h"
        fail(f"--certificate-ttl must be from {SHORTEST_TTL.seconds} s to {LONGEST_TTL.days} days", hint, code=2)
    return Trust(ca.absolute() if ca else None, ttl)
