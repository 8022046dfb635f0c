"""`weft down`: ends a running mesh and waits until it has ended. Also cleans up after a mesh that was killed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from weft.cli.flags import completions
from weft.cli.print.output import fail, say

if TYPE_CHECKING:
    from weft.local.run_directory import MeshRecord

PATIENCE = 30.0  # seconds; a mesh gives its pods a few seconds to finish their requests


@click.command()
@click.argument(
    "name",
    required=False,
    help="The mesh's name; optional if there is only one.",
    shell_complete=completions.meshes,
)
@click.option("--all", "everything", is_flag=True, help="End all meshes of this machine.")
def down(name: str | None, everything: bool) -> None:
    """End a mesh: its pods, proxies, namespaces and files. Also cleans up after a mesh that was killed.

    \b
    Example: weft down
             weft down --all
    """
    from weft.local.run_directory import meshes

    records = meshes()
    if everything:
        chosen = records
    elif name is not None:
        chosen = [record for record in records if record.name == name]
        if not chosen and not _clean(name):
            from weft.base.suggest import did_you_mean

            fail(f"there is no mesh named `{name}`", did_you_mean(name, (record.name for record in records)))
    elif len(records) > 1:
        names = [record.name for record in records]
        fail(f"there are several meshes: {', '.join(names)}", f"choose one: weft down {names[0]}, or --all", code=2)
    else:
        chosen = records
        if not chosen:
            say("no mesh is running")
    for record in chosen:
        _end(record)


def _end(record: MeshRecord) -> None:
    import os
    import signal
    import time

    from weft.local.run_directory import find

    if not record.running:
        _clean(record.name)
        say(f"mesh {record.name} had been killed; cleaned up after it")
        return
    say(f"ending mesh {record.name} …")
    try:
        os.kill(record.pid, signal.SIGTERM)
    except PermissionError:
        fail(f"mesh {record.name} (pid {record.pid}) belongs to another user", "sudo weft down")
    except ProcessLookupError:
        pass
    deadline = time.monotonic() + PATIENCE
    while (now := find(record.name)) is not None and now.running:
        if time.monotonic() > deadline:
            fail(
                f"mesh {record.name} (pid {record.pid}) has not ended after {PATIENCE:.0f} s",
                f"kill -9 {record.pid}, then again: weft down {record.name}",
            )
        time.sleep(0.05)
    _clean(record.name)
    say(f"mesh {record.name} is gone")


def _clean(name: str) -> bool:
    from weft.local.run_directory import clean

    return clean(name)
