"""Where a `weft control` of this machine is asked by its owner: a directory with two sockets, of which there is one if
nobody chooses another. Loads nothing: every command looks here that nobody has told which mesh is meant."""

from __future__ import annotations

import os
from pathlib import Path

PAGES = "debug.sock"
STREAMS = "xds.sock"  # for istioctl, which asks over xDS
_NAME = ".control"  # no mesh can be called so


def default_place() -> Path | None:
    """The default directory of a control plane's socket; None if this user has no run directory."""
    base = os.environ.get("WEFT_RUN_DIR") or ("/run/weft" if os.geteuid() == 0 else "")
    if not base and (own := os.environ.get("XDG_RUNTIME_DIR")):
        base = f"{own}/weft"
    return Path(base) / _NAME if base else None


def is_place(mesh: str) -> bool:
    """Whether it is a path, and so no mesh's name."""
    return "/" in mesh


def running_place() -> Path | None:
    """The default one, if somebody answers there."""
    place = default_place()
    return place if place is not None and answers(place) else None


def answers(place: Path) -> bool:
    import socket

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asked:
        asked.settimeout(1.0)
        try:
            asked.connect(str(place / PAGES))
        except OSError:
            return False
    return True
