"""The way out of a mesh on one machine (`weft up --egress`): lets pods reach TCP hosts outside the mesh.

The nat table of the mesh's own namespace redirects connections that leave the mesh to an Envoy in that namespace, which
hands them over a Unix socket to an Envoy in the machine's network (`envoy/egress.py`). So weft creates no route, rule,
link or setting on the machine. The kernel kills both Envoys when weft's process ends, even by kill -9.

Rule: pods reach nothing that the machine itself serves. Loopback, the machine's own addresses, link-local addresses
(where clouds serve credentials), multicast and the mesh's own ranges are refused.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path

from weft.base.problem import Problem, Where
from weft.envoy import egress
from weft.local.addresses import POD_RANGES, SERVICE_RANGES
from weft.local.forwarding_envoy import EnvoyPlace, ForwardingEnvoy, own_directory, replace
from weft.netns.balancing import WayOut
from weft.netns.links import Bridge
from weft.netns.local_ranges import local_ranges
from weft.netns.namespace import NetworkError

log = logging.getLogger("weft.local.egress")

PORT = 15009  # on the bridge, which only pods can reach
_LOOK = 1.0  # seconds between two looks at the machine's addresses
_DIRECTORY = "egress"
_NEVER: tuple[IPv4Network | IPv6Network, ...] = (
    *POD_RANGES,
    *SERVICE_RANGES,
    *map(IPv4Network, ("0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/3")),
    *map(IPv6Network, ("::/128", "::1/128", "::ffff:0:0/96", "fe80::/10", "ff00::/8")),
)


def way_out(addresses: Iterable[str], bridge: str) -> WayOut:
    """Return where connections that leave the mesh are redirected. `addresses`: those of the bridge. `bridge`: the name
    of the bridge's interface."""
    return WayOut(tuple(addresses), PORT, tuple(str(each) for each in (*POD_RANGES, *SERVICE_RANGES)), bridge)


class Egress:
    def __init__(self, binary: Path, run_directory: Path, bridge: Bridge) -> None:
        """`binary`: the Envoy executable. `run_directory`: the mesh's run directory, for the Envoys' own files.
        `bridge`: the mesh's bridge."""
        self._directory = run_directory / _DIRECTORY
        self._addresses = [str(each.ip) for each in (bridge.ipv4, bridge.ipv6) if each is not None]
        self._refused: frozenset[IPv4Network | IPv6Network] = frozenset()
        inside = EnvoyPlace(
            what="the Envoy that accepts connections to hosts outside the mesh",
            working_directory=self._directory,
            visible=(self._directory,),
            namespace=bridge.namespace,
        )
        outside = EnvoyPlace(
            what="the Envoy that connects to hosts outside the mesh",
            working_directory=self._directory,
            visible=(self._directory,),
        )
        self._envoys = (
            ForwardingEnvoy(binary, self._directory / egress.INSIDE, inside),
            ForwardingEnvoy(binary, self._directory / egress.OUTSIDE, outside),
        )

    async def start(self) -> None:
        """Write the Envoys' files and start both. Raises NetworkError, or OSError."""
        directory = str(self._directory)
        own_directory(self._directory)
        own_directory(self._directory / egress.OUTSIDE_DIRECTORY)
        replace(self._directory / egress.INSIDE, egress.inside(directory, self._addresses, PORT))
        replace(self._directory / egress.OUTSIDE, egress.outside(directory))
        self._refuse(await asyncio.to_thread(local_ranges))
        for envoy in self._envoys:
            envoy.start()

    async def keep(self) -> None:
        """Until cancelled, update the refused addresses when the machine's own addresses change."""
        while True:
            await asyncio.sleep(_LOOK)
            try:
                self._refuse(await asyncio.to_thread(local_ranges))
            except (NetworkError, OSError) as error:
                log.error("%s", error)

    def problems(self) -> tuple[Problem, ...]:
        troubles = (envoy.trouble for envoy in self._envoys)
        what = "pods cannot reach hosts outside the mesh"
        return tuple(Problem(Where(), f"{what}: {trouble}") for trouble in troubles if trouble)

    async def close(self) -> None:
        for envoy in self._envoys:
            await envoy.close()

    def _refuse(self, own: frozenset[IPv4Network | IPv6Network]) -> None:
        if own == self._refused:
            return
        # Sorted by text, because addresses of two IP families cannot be compared.
        refused = sorted({*own, *_NEVER}, key=str)
        text = egress.listeners(str(self._directory), refused)
        replace(self._directory / egress.OUTSIDE_DIRECTORY / egress.LISTENERS, text)
        self._refused = own
