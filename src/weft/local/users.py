"""Which users the apps of a mesh run as: a range of UIDs that no other mesh of this machine has, so that an app can
neither signal nor trace another mesh's. Taken ranges and what runs come in, a range leaves."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

from weft.local.error import LocalError

FIRST = 10_000  # below are the machine's own users and the proxy's 1337
LAST = 60_000  # above are systemd's dynamic users, `nobody` and the users of containers
WIDTH = 2_000  # pods of one mesh


def free_users(taken: Collection[int]) -> range:
    """The first range that no mesh has (`taken`: where theirs begin) and as which nothing runs: a mesh with another
    run directory is seen by its processes."""
    running = {(uid - FIRST) // WIDTH for uid in _running_users()}
    for number in range((LAST - FIRST) // WIDTH):
        start = FIRST + number * WIDTH
        if start not in taken and number not in running:
            return range(start, start + WIDTH)
    what = f"no users are left for another mesh: all UIDs from {FIRST} to {LAST} are taken in steps of {WIDTH}"
    raise LocalError(what, "end a mesh that is not needed: weft down NAME")


def _running_users() -> set[int]:
    found = set()
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                found.add(Path(entry.path).stat().st_uid)
            except OSError:
                continue  # it has just ended
    return found
