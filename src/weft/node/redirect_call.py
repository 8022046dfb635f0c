"""How a pod asks its node's agent for its redirect: one line of JSON, and one in answer.

    → {"arguments": ["-p", "15001", …]}     ← {}, or {"error": "…", "hint": "…"}

What runs at the start of a pod's proxy comes in with Istio's arguments and leaves when the rules are in place. A pod
waits for it, so that this file loads next to nothing. Rule: without an answer the pod must not start.
"""

from __future__ import annotations

import socket
import time
from pathlib import Path

import msgspec

LONGEST = 16 * 1024  # bytes of a line: thousands of ports
_PAUSE = 0.1  # seconds


class RedirectRequest(msgspec.Struct, frozen=True):
    """`arguments` are those of Istio's init container."""

    arguments: tuple[str, ...]


class RedirectResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """Empty: done."""

    error: str = ""
    hint: str = ""


class RedirectFailed(Exception):
    """The pod must not start: its traffic would pass by its proxy."""


def ask(path: Path, arguments: tuple[str, ...], *, timeout: float) -> None:
    """Have the traffic of the network that this process lives in redirected. Raises RedirectFailed."""
    end = time.monotonic() + timeout
    while True:
        try:
            answer = _ask(path, arguments, end)
            break
        except (OSError, ValueError) as error:
            # The agent may be starting anew: it makes its socket again.
            if time.monotonic() + _PAUSE >= end:
                why = getattr(error, "strerror", None) or str(error)
                raise RedirectFailed(
                    f"the node's agent does not answer at {path} within {timeout:g} s ({why}); "
                    "see that it runs on this node, and with --redirect"
                ) from None
            time.sleep(_PAUSE)
    if answer.error:
        raise RedirectFailed(f"the node's agent says: {answer.error}" + (f" ({answer.hint})" if answer.hint else ""))


def _ask(path: Path, arguments: tuple[str, ...], end: float) -> RedirectResult:
    """`end`, by the clock that runs evenly, is when an answer is of no use any more."""
    line = b""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(max(_PAUSE, end - time.monotonic()))
        connection.connect(str(path))
        connection.sendall(msgspec.json.encode(RedirectRequest(arguments)) + b"\n")
        while not line.endswith(b"\n") and len(line) < LONGEST:
            connection.settimeout(max(_PAUSE, end - time.monotonic()))
            some = connection.recv(LONGEST)
            if not some:
                break
            line += some
    if not line:
        raise ValueError("it closed the connection without a word")
    return msgspec.json.decode(line, type=RedirectResult)
