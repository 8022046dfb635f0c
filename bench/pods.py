"""Namespaces for the rigs: a bridge of their own and pods on it, with weft's own links and interception; gone afterwards."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv4Interface

from weft.netns import iptables, links, namespace
from weft.netns.interception import PROXY_PORTS, Interception
from weft.netns.namespace import Namespace

_GATEWAY = IPv4Interface("10.77.0.1/16")


class Network:
    """A bridge, and the pods that were put on it so far."""

    def __init__(self, bridge: links.Bridge) -> None:
        self._bridge = bridge
        self._made: list[links.PodLink] = []

    def pod(self, name: str, *, unseen_ports: tuple[int, ...] = (), intercepted: bool = True) -> links.PodLink:
        """A pod whose connections pass a proxy on 15001 and 15006, except those to or from `unseen_ports`."""
        made = namespace.make(f"{self._bridge.namespace.name}-{name}")
        link = links.PodLink(made, self._bridge, IPv4Address(int(_GATEWAY.ip) + 1 + len(self._made)))
        self._made.append(link)
        links.connect(link)
        if intercepted:
            rules = Interception(
                inbound_ports_excluded=(*PROXY_PORTS, *unseen_ports), outbound_ports_excluded=unseen_ports
            )
            iptables.apply(made, rules)
        return link

    def remove(self) -> None:
        for link in self._made:
            namespace.delete(link.namespace)


@contextlib.contextmanager
def network(name: str) -> Iterator[Network]:
    """Names carry the process id, so that runs side by side do not meet."""
    home = namespace.make(f"bench-{os.getpid()}-{name}")
    bridge = links.Bridge(home, _GATEWAY)
    made = Network(bridge)
    try:
        links.make_bridge(bridge)
        yield made
    finally:
        made.remove()
        namespace.delete(Namespace(home.name))
