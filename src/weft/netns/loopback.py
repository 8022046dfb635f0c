"""Adds `::6` to a pod's loopback interface: the source address of the proxy's inbound IPv6 connections to the
application. The IPv4 counterpart, 127.0.0.6, exists on every loopback interface."""

from __future__ import annotations

import errno
import fcntl
import socket
import struct

from weft.netns.namespace import NetworkNamespace, run_in

INBOUND_SOURCE = "::6"

_SIOCSIFADDR = 0x8916
# The address exists already, or this network has no IPv6 and so no connection that would need it.
_HARMLESS = (errno.EEXIST, errno.EACCES, errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT, errno.ENODEV)


def carry_inbound_source(namespace: NetworkNamespace) -> bool:
    """Add `::6` to the loopback interface of `namespace`. Return whether the interface has the address now; False if
    the namespace has no IPv6. Idempotent. Raises OSError without NET_ADMIN."""

    def add() -> bool:
        try:
            with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as handle:
                # The kernel's struct in6_ifreq: address, prefix, interface.
                request = socket.inet_pton(socket.AF_INET6, INBOUND_SOURCE)
                request += struct.pack("Ii", 128, socket.if_nametoindex("lo"))
                fcntl.ioctl(handle, _SIOCSIFADDR, request)
        except OSError as error:
            if error.errno not in _HARMLESS:
                raise
            return error.errno == errno.EEXIST
        return True

    return run_in(namespace, add)
