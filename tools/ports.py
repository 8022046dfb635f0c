"""Chooses port numbers for programs that need a fixed port before they listen, or that must listen on the same port
again.

The ports are below the kernel's ephemeral range, so the kernel assigns them neither to listeners on port 0 nor to
outgoing connections. This process claims each port for its lifetime, by an abstract Unix socket named after the
port, so that several test runs at once do not choose the same port.
"""

from __future__ import annotations

import itertools
import os
import socket

_FIRST, _COUNT = 20_000, 12_000
_STEP = 131  # distance between the first ports of two processes with consecutive ids
_numbers = itertools.count(os.getpid() * _STEP)
_claims: list[socket.socket] = []


def free_port() -> int:
    """Return a port that is free on this machine, for TCP and for UDP. Each port is returned once."""
    while True:
        number = _FIRST + next(_numbers) % _COUNT
        if all(_is_free(number, kind) for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM)) and _claim(number):
            return number


def _claim(number: int) -> bool:
    claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        claim.bind(f"\0weft-port-{number}")
    except OSError:
        claim.close()
        return False
    _claims.append(claim)
    return True


def _is_free(number: int, kind: socket.SocketKind) -> bool:
    with socket.socket(socket.AF_INET, kind) as tried:
        if kind is socket.SOCK_STREAM:
            # Servers set this option, too: connections in TIME_WAIT do not block the port.
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind(("", number))
        except OSError:
            return False
    return True
