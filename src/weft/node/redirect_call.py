"""How a pod requests its redirect from its node's agent: one line of JSON, and one line in response.

    → {"arguments": ["-p", "15001", …]}     ← {}, or {"error": "…", "hint": "…"}

The program that runs at the start of a pod's proxy sends the arguments of istio-iptables and returns when the rules are
installed. The pod's start waits for it, so this module imports almost nothing. Rule: without a successful response the
pod must not start.
"""

from __future__ import annotations

import socket
import time
from pathlib import Path

import msgspec

LONGEST = 16 * 1024  # bytes of a line: enough for thousands of ports
_PAUSE = 0.1  # seconds between attempts


class RedirectRequest(msgspec.Struct, frozen=True):
    """What a pod sends to request its redirect. `arguments`: those of Istio's init container (istio-iptables), which
    state the traffic to redirect."""

    arguments: tuple[str, ...]


class RedirectResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """The agent's response. Both fields are empty if the rules are installed."""

    error: str = ""
    hint: str = ""


class RedirectFailed(Exception):
    """The redirect was not installed. The pod must not start, because its traffic would bypass its proxy."""


def ask(path: Path, arguments: tuple[str, ...], *, timeout: float) -> None:
    """Request from the agent at the socket `path` that it redirects the traffic of this process's network namespace,
    and wait for its response, at most `timeout` seconds. `arguments` are those of istio-iptables. Raises
    RedirectFailed."""
    end = time.monotonic() + timeout
    while True:
        try:
            answer = _ask(path, arguments, end)
            break
        except (OSError, ValueError) as error:
            # The agent may be restarting; it creates its socket again.
            if time.monotonic() + _PAUSE >= end:
                why = getattr(error, "strerror", None) or str(error)
                raise RedirectFailed(
                    f"no response from the node's agent at {path} within {timeout:g} s ({why}); "
                    "check that the agent runs on this node, and with --redirect"
                ) from None
            time.sleep(_PAUSE)
    if answer.error:
        raise RedirectFailed(f"the node's agent reports: {answer.error}" + (f" ({answer.hint})" if answer.hint else ""))


def _ask(path: Path, arguments: tuple[str, ...], end: float) -> RedirectResult:
    """Send one request with the arguments of istio-iptables and return its response. `end` is the deadline by
    `time.monotonic`."""
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
        raise ValueError("the agent closed the connection without a response")
    return msgspec.json.decode(line, type=RedirectResult)
