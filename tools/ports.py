"""Numbers of ports for programs that must be told one before they listen, or that listen on the same one again.

They lie below those that the kernel gives to whoever asks for any port, and to outgoing connections: none of those can
take one in between. Each is claimed for as long as this process lives, by a socket named after it, so that two runs
beside each other do not meet either.
"""

from __future__ import annotations

import itertools
import os
import socket

_FIRST, _COUNT = 20_000, 12_000
_STEP = 131  # from one process's place to the next one's
_numbers = itertools.count(os.getpid() * _STEP)
_claims: list[socket.socket] = []


def free_port() -> int:
    """One that nobody has on loopback, neither for TCP nor for UDP; each is given once."""
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
            # As servers do: a connection that has ended is in nobody's way.
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind(("", number))
        except OSError:
            return False
    return True
