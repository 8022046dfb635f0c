"""The directory with the two sockets of a `weft control` on this machine, which only its owner can open. Imports
nothing heavy: every command without `--mesh` looks here for a running control plane."""

from __future__ import annotations

import os
from pathlib import Path

PAGES = "debug.sock"
STREAMS = "xds.sock"  # for istioctl, which sends its queries over xDS
_NAME = ".control"  # not a valid name of a mesh


def default_place() -> Path | None:
    """Return the default directory of a control plane's sockets; None if this user has no run directory."""
    base = os.environ.get("WEFT_RUN_DIR") or ("/run/weft" if os.geteuid() == 0 else "")
    if not base and (own := os.environ.get("XDG_RUNTIME_DIR")):
        base = f"{own}/weft"
    return Path(base) / _NAME if base else None


def is_place(mesh: str) -> bool:
    """Return whether the value of `--mesh` is the path of a control plane's directory; otherwise it is the name of a
    mesh."""
    return "/" in mesh


def running_place() -> Path | None:
    """Return the default directory if a control plane accepts connections there, else None."""
    place = default_place()
    return place if place is not None and answers(place) else None


def answers(place: Path) -> bool:
    import socket

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(1.0)
        try:
            connection.connect(str(place / PAGES))
        except OSError:
            return False
    return True
