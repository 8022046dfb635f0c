"""Links and addresses: a bridge in the mesh's own namespace, and a veth pair from each pod's namespace to it.

Both ends of a pair are created inside their namespaces, so the host never sees a link, an address or a route. All
changes use netlink from a thread inside the namespace: one pod costs a few milliseconds and no process.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable
from ipaddress import IPv4Address, IPv4Interface, IPv6Address, IPv6Interface
from pathlib import Path

import msgspec
from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from weft.netns.namespace import NetworkError, NetworkNamespace, ipv6_available, run_in

POD_INTERFACE = "eth0"
BRIDGE = "weft0"
# Envoy's source address for inbound IPv6 connections to the app. For IPv4 it is 127.0.0.6, which every loopback
# interface has.
INBOUND_SOURCE_IPV6 = IPv6Address("::6")

_LOCAL_ROUTE = 2  # RTN_LOCAL
_HOST_SCOPE = 254  # RT_SCOPE_HOST
_LOOPBACK_INDEX = 1
# IFA_F_NODAD: without duplicate address detection an address is usable at once. weft assigns every address here, so
# there are no duplicates.
_NODAD = 0x02


class Bridge(msgspec.Struct, frozen=True):
    """The switch of the mesh, in a network namespace that only the mesh uses. `ipv4` and `ipv6`: the bridge's
    addresses, which are the default gateways of the pods. `ipv6` is None if the mesh has no IPv6. `name`: the name of
    the interface."""

    namespace: NetworkNamespace
    ipv4: IPv4Interface
    ipv6: IPv6Interface | None = None
    name: str = BRIDGE


class PodLink(msgspec.Struct, frozen=True):
    """The veth pair that connects one pod to the bridge. `namespace`: the pod's. `ipv4` and `ipv6`: the pod's
    addresses; `ipv6` is None if the mesh has no IPv6."""

    namespace: NetworkNamespace
    bridge: Bridge
    ipv4: IPv4Address
    ipv6: IPv6Address | None = None

    @property
    def peer(self) -> str:
        """The interface's name on the bridge's side, derived from the IPv4 address, so that it need not be stored."""
        return f"pod{int(self.ipv4):08x}"


def make_bridge(bridge: Bridge) -> None:
    """Create the bridge in its namespace, which must exist and be empty."""

    def build() -> None:
        # Bridged packets need no firewall rules, and evaluating them costs time for every packet.
        for family in ("iptables", "ip6tables", "arptables"):
            _set(f"net/bridge/bridge-nf-call-{family}", "0", needed=False)
        _set("net/ipv4/ip_unprivileged_port_start", "0")
        _prepare_ipv6()
        _set("net/ipv4/ip_forward", "1")
        if bridge.ipv6 is not None:
            _set("net/ipv6/conf/all/forwarding", "1")
        with IPRoute() as netlink:
            netlink.link("set", index=_LOOPBACK_INDEX, state="up")
            netlink.link(
                "add",
                ifname=bridge.name,
                kind="bridge",
                # Fixed: otherwise the bridge takes the lowest address of its ports, which changes when pods start or
                # end.
                address=_hardware_address(bridge.ipv4.ip),
                br_mcast_snooping=0,
                state="up",
            )
            index = socket.if_nametoindex(bridge.name)
            _add_address(netlink, index, bridge.ipv4)
            _refuse_unassigned_addresses(netlink, socket.AF_INET)
            if bridge.ipv6 is not None:
                _add_address(netlink, index, bridge.ipv6)
                _refuse_unassigned_addresses(netlink, socket.AF_INET6)

    _run(bridge.namespace, build)


def _refuse_unassigned_addresses(netlink: IPRoute, family: int) -> None:
    """Route every unassigned address to the bridge itself, where nothing listens, so that the kernel refuses each
    connection at once. Without this route, the kernel would answer with ICMP "unreachable" messages, but only a
    limited number per second; callers that get no message would wait for a timeout."""
    netlink.route(
        "add", family=family, dst="default", type=_LOCAL_ROUTE, scope=_HOST_SCOPE, oif=_LOOPBACK_INDEX, priority=4096
    )


def connect(pod: PodLink) -> None:
    """Create the interface, addresses and routes of a pod's namespace, which must exist and be empty."""

    def plug_in() -> None:
        handle = os.open(pod.namespace.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            with IPRoute() as netlink:
                netlink.link(
                    "add",
                    ifname=pod.peer,
                    kind="veth",
                    master=socket.if_nametoindex(pod.bridge.name),
                    state="up",
                    peer={
                        "ifname": POD_INTERFACE,
                        "address": _hardware_address(pod.ipv4),
                        "net_ns_fd": handle,
                    },
                )
        finally:
            os.close(handle)

    def set_up() -> None:
        with IPRoute() as netlink:
            netlink.link("set", index=_LOOPBACK_INDEX, state="up")
            index = socket.if_nametoindex(POD_INTERFACE)
            netlink.link("set", index=index, state="up")
            _add_address(netlink, index, IPv4Interface((pod.ipv4, pod.bridge.ipv4.network.prefixlen)))
            netlink.route("add", dst="0.0.0.0/0", gateway=str(pod.bridge.ipv4.ip), oif=index)
            if pod.ipv6 is not None and pod.bridge.ipv6 is not None:
                _add_address(netlink, _LOOPBACK_INDEX, IPv6Interface((INBOUND_SOURCE_IPV6, 128)))
                _add_address(netlink, index, IPv6Interface((pod.ipv6, pod.bridge.ipv6.network.prefixlen)))
                netlink.route("add", dst="::/0", gateway=str(pod.bridge.ipv6.ip), oif=index)

    def prepare() -> None:
        # An app runs under its own non-root UID, and must still be able to listen on port 80 and to ping.
        _set("net/ipv4/ip_unprivileged_port_start", "0")
        _set("net/ipv4/ping_group_range", "0 2147483647", needed=False)
        _prepare_ipv6()

    # Settings that the kernel copies to new interfaces must be set before the interface is created.
    _run(pod.namespace, prepare)
    _run(pod.bridge.namespace, plug_in)
    _run(pod.namespace, set_up)


def disconnect(pod: PodLink) -> None:
    """Remove the pod's link from the bridge at once, without waiting for its namespace to end. Idempotent."""

    def unplug() -> None:
        with IPRoute() as netlink:
            for index in netlink.link_lookup(ifname=pod.peer):
                netlink.link("del", index=index)

    _run(pod.bridge.namespace, unplug)


def _run(namespace: NetworkNamespace, work: Callable[[], None]) -> None:
    try:
        run_in(namespace, work)
    except NetlinkError as error:
        hints = {
            errno.EOPNOTSUPP: "modprobe veth bridge",
            errno.EPERM: "run as root",
            errno.EEXIST: f"list its addresses with: ip -n {namespace.name} address",
        }
        raise NetworkError(f"netlink: {error}", hints.get(error.code, ""), where=str(namespace)) from error
    except OSError as error:
        raise NetworkError(f"the network cannot be set up: {error}", "run as root", where=str(namespace)) from error


def _add_address(netlink: IPRoute, index: int, address: IPv4Interface | IPv6Interface) -> None:
    flags = {"flags": _NODAD} if address.version == 6 else {}
    netlink.addr("add", index=index, address=str(address.ip), prefixlen=address.network.prefixlen, **flags)


def _prepare_ipv6() -> None:
    if ipv6_available():
        for scope in ("all", "default"):
            _set(f"net/ipv6/conf/{scope}/disable_ipv6", "0")
            _set(f"net/ipv6/conf/{scope}/accept_ra", "0")
        _set("net/ipv6/conf/default/accept_dad", "0")


def _set(name: str, value: str, *, needed: bool = True) -> None:
    """Write `value` to the sysctl `name` in the network namespace that this thread is in. A missing sysctl is an
    error only if `needed`."""
    try:
        Path("/proc/sys", name).write_text(value, encoding="ascii")
    except FileNotFoundError:
        if needed:
            raise


def _hardware_address(address: IPv4Address) -> str:
    """Return a locally administered MAC address derived from the IPv4 address: unique on its bridge, easy to read."""
    return ":".join(f"{byte:02x}" for byte in (0x02, 0x77, *address.packed))
