"""Lists the TCP ports and address families on which the programs of a network namespace listen, from /proc/net/tcp."""

from __future__ import annotations

from pathlib import Path

_LISTEN = "0A"  # the state's number in /proc/net/tcp
_LOOPBACK = ("0100007F", "00000000000000000000000001000000")


def listening(pid: int) -> frozenset[tuple[int, int]]:
    """Return (IP version, port) of every TCP socket, in the network namespace of process `pid`, that accepts
    connections from outside. An IPv6 socket is returned for both IP versions."""
    own = {(4, port) for port in _ports(pid, "tcp")}
    for port in _ports(pid, "tcp6"):
        own |= {(6, port), (4, port)}  # an IPv6 socket also accepts IPv4, unless IPV6_V6ONLY is set
    return frozenset(own)


def inward(pid: int) -> frozenset[int]:
    """Return the ports on which the programs in the network namespace of process `pid` listen only at a loopback
    address, so that they cannot be reached from outside."""
    of_its_own = {port for table in ("tcp", "tcp6") for port in _ports(pid, table, loopback=True)}
    return frozenset(of_its_own - {port for _, port in listening(pid)})


def _ports(pid: int, table: str, *, loopback: bool = False) -> set[int]:
    try:
        lines = Path(f"/proc/{pid}/net/{table}").read_text(encoding="ascii").splitlines()[1:]
    except OSError:
        return set()
    ports = set()
    for line in lines:
        fields = line.split()
        address, _, port = fields[1].partition(":")
        if fields[3] == _LISTEN and (address in _LOOPBACK) is loopback:
            ports.add(int(port, 16))
    return ports
