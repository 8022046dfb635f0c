"""The destination addresses of packets that the kernel delivers to this machine itself: the machine's own addresses,
and broadcast, anycast and multicast addresses."""

from __future__ import annotations

import socket
from ipaddress import IPv4Network, IPv6Network, ip_network

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from weft.netns.namespace import NetworkError, own, run_in

_STAYING = frozenset({2, 3, 4, 5})  # types of routes: local, broadcast, anycast, multicast


def local_ranges() -> frozenset[IPv4Network | IPv6Network]:
    """Return the destination ranges of all routes that keep packets on this machine, from all routing tables of this
    process's network namespace. Raises NetworkError."""
    try:
        return run_in(own(), _read)
    except (NetlinkError, OSError) as error:
        raise NetworkError(f"the machine's addresses cannot be read: {error}", "run as root") from error


def _read() -> frozenset[IPv4Network | IPv6Network]:
    ranges = set()
    with IPRoute() as netlink:
        for family, every in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
            for route in netlink.get_routes(family=family):
                if route["type"] in _STAYING:
                    ranges.add(ip_network(f"{route.get_attr('RTA_DST') or every}/{route['dst_len']}"))
    return frozenset(ranges)
