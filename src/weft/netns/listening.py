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


def inward(pid: int) -> frozenset[int]:
    """The ports on which something listens on the loopback address alone, where nobody outside can reach it."""
    of_its_own = {port for table in ("tcp", "tcp6") for port in _ports(pid, table, loopback=True)}
    return frozenset(of_its_own - {port for _, port in listening(pid)})


def _ports(pid: int, table: str, *, loopback: bool = False) -> set[int]:
    try:
        lines = Path(f"/proc/{pid}/net/{table}").read_text(encoding="ascii").splitlines()[1:]
    except OSError:
        return set()
    found = set()
    for line in lines:
        fields = line.split()
        address, _, port = fields[1].partition(":")
        if fields[3] == _LISTEN and (address in _LOOPBACK) is loopback:
            found.add(int(port, 16))
    return found
