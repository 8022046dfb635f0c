"""On which ports and address families a namespace's programs take connections, as the kernel lists it."""

from __future__ import annotations

from pathlib import Path

_LISTEN = "0A"  # the state's number in /proc/net/tcp
_LOOPBACK = ("0100007F", "00000000000000000000000001000000")


def listening(pid: int) -> frozenset[tuple[int, int]]:
    """(4 or 6, port) of every TCP socket that others may connect to, in the namespace of a process."""
    own = {(4, port) for port in _ports(pid, "tcp")}
    for port in _ports(pid, "tcp6"):
        own |= {(6, port), (4, port)}  # a socket of the wider family takes both, unless it asked not to
    return frozenset(own)


def _ports(pid: int, table: str) -> set[int]:
    try:
        lines = Path(f"/proc/{pid}/net/{table}").read_text(encoding="ascii").splitlines()[1:]
    except OSError:
        return set()
    found = set()
    for line in lines:
        fields = line.split()
        address, _, port = fields[1].partition(":")
        if fields[3] == _LISTEN and address not in _LOOPBACK:
            found.add(int(port, 16))
    return found
