"""Selects the UIDs for the apps of a mesh: a range that no other mesh of this machine uses, so that an app can neither
signal nor trace an app of another mesh.

Input: the ranges in use and the running processes. Output: a free range.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

from weft.local.error import LocalError

FIRST = 10_000  # lower UIDs belong to the machine's users and the proxy (1337)
LAST = 60_000  # higher UIDs belong to systemd's dynamic users, `nobody` and containers
WIDTH = 2_000  # the most pods of one mesh


def free_users(taken: Collection[int]) -> range:
    """Return the first range of UIDs that no mesh uses and that has no running process. `taken`: the first UIDs of
    the ranges of the meshes with the same base directory. Meshes with other base directories are recognized by
    their running processes."""
    running = {(uid - FIRST) // WIDTH for uid in _running_users()}
    for number in range((LAST - FIRST) // WIDTH):
        start = FIRST + number * WIDTH
        if start not in taken and number not in running:
            return range(start, start + WIDTH)
    what = f"no UIDs are free for another mesh: all ranges of {WIDTH} from {FIRST} to {LAST} are in use"
    raise LocalError(what, "stop a mesh that you do not need: weft down NAME")


def _running_users() -> set[int]:
    users = set()
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                users.add(Path(entry.path).stat().st_uid)
            except OSError:
                continue  # the process has just ended
    return users
