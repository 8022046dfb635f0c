"""Adds `::6` to a pod's loopback interface: the source address of the proxy's inbound IPv6 connections to the
application. The IPv4 counterpart, 127.0.0.6, exists on every loopback interface.

The one netlink message is written by hand: the init container of every pod runs this, and importing pyroute2 would take
longer than everything else that the container does.
"""

from __future__ import annotations

import errno
import os
import socket
import struct

from weft.netns.namespace import NetworkNamespace, run_in

INBOUND_SOURCE = "::6"

_RTM_NEWADDR = 20
_REQUEST = 0x605  # NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL
# IFA_F_NODAD: without it the kernel looks for duplicates in the background, and until then no process can bind the
# address.
_NODAD = 0x02
_IFA_ADDRESS = 1
# The address exists already, or this network has no IPv6 and so no connection that would need it.
_HARMLESS = (errno.EEXIST, errno.EACCES, errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT, errno.EOPNOTSUPP, errno.ENODEV)


def carry_inbound_source(namespace: NetworkNamespace) -> bool:
    """Add `::6` to the loopback interface of `namespace`. Return whether the interface has the address now; False if
    the namespace has no IPv6. Idempotent. Raises OSError without NET_ADMIN."""

    def add() -> bool:
        try:
            _add_address(INBOUND_SOURCE, socket.if_nametoindex("lo"))
        except OSError as error:
            if error.errno not in _HARMLESS:
                raise
            return error.errno == errno.EEXIST
        return True

    return run_in(namespace, add)


def _add_address(address: str, interface: int) -> None:
    """Add one IPv6 address, usable at once, to the interface with this index."""
    packed = socket.inet_pton(socket.AF_INET6, address)
    body = struct.pack("=BBBBI", socket.AF_INET6, 128, _NODAD, 0, interface)  # struct ifaddrmsg
    body += struct.pack("=HH", 4 + len(packed), _IFA_ADDRESS) + packed  # one struct rtattr
    header = struct.pack("=IHHII", 16 + len(body), _RTM_NEWADDR, _REQUEST, 1, 0)  # struct nlmsghdr
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE) as netlink:
        netlink.sendto(header + body, (0, 0))
        (code,) = struct.unpack_from("=i", netlink.recv(4096), 16)  # struct nlmsgerr follows the header
    if code:
        raise OSError(-code, os.strerror(-code))
