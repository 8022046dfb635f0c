"""Computes which virtual addresses of services must work without a proxy, and keeps the bridge's load-balancing rules
for them up to date.

If every pod has a proxy through which all its traffic passes, no rules are needed and none are installed, except the
redirect of connections that leave the mesh (`egress.py`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from functools import partial
from ipaddress import ip_address

from weft.local.blocking import to_its_end
from weft.mesh.mesh import Mesh
from weft.model.gateway_api import StandardRoute
from weft.model.service import Protocol, Resolution, Service
from weft.model.sidecar import Sidecar
from weft.model.value import Value
from weft.model.workload import Workload
from weft.netns.balancing import VirtualAddress, WayOut, balance
from weft.netns.namespace import NetworkError, NetworkNamespace

log = logging.getLogger("weft.local.virtual_addresses")

_QUIET = 0.02  # seconds to collect changes before the rules are updated


class VirtualAddresses:
    def __init__(self, mesh: Mesh, way_out: WayOut | None = None) -> None:
        """`way_out`: where connections that leave the mesh are redirected; None if pods have no way out."""
        self._mesh, self._way_out = mesh, way_out
        self._dirty = asyncio.Event()
        self._settled = asyncio.Event()
        self._settled.set()
        self._installed: list[VirtualAddress] | None = [] if way_out is None else None  # None: no rule yet

    def changed(self) -> None:
        self._dirty.set()
        self._settled.clear()

    async def settled(self) -> None:
        """Return when the rules match the mesh's current services."""
        await self._settled.wait()

    async def keep(self, bridge: NetworkNamespace) -> None:
        """Update the rules in the namespace `bridge` after every change of the mesh, until cancelled."""
        while True:
            await self._dirty.wait()
            await asyncio.sleep(_QUIET)
            self._dirty.clear()
            wanted = list(virtual_addresses(self._mesh)) if is_needed(self._mesh) else []
            try:
                if wanted != self._installed:
                    await to_its_end(partial(balance, bridge, wanted, self._way_out))
                    self._installed = wanted
            except (NetworkError, OSError) as error:
                log.error("%s", error)
            if not self._dirty.is_set():
                self._settled.set()


def is_needed(mesh: Mesh) -> bool:
    """Return whether the bridge's rules are needed: whether any connection in the mesh may reach the bridge with a
    service's virtual address as its destination. Otherwise a proxy replaces every such address by that of an
    endpoint."""
    return any(_calls_addresses(value) for _, values in mesh.values() for value in values)


def _calls_addresses(value: Value) -> bool:
    match value:
        case Workload():
            return not value.inject or _lets_out(value)
        case StandardRoute():
            # A request to another service that names this route's Service as its host is for an unknown host, which a
            # proxy forwards to the original destination.
            return any(each.kind == "Service" for each in value.parents)
        case Sidecar():
            # A proxy forwards calls to services outside its scope to the original destination, which may be a virtual
            # address.
            return bool(value.egress)
        case Service():
            # The DNS name of an endpoint may be the host of another service.
            by_name = value.resolution in (Resolution.DNS, Resolution.DNS_ROUND_ROBIN)
            hidden = bool(value.export_to) and "*" not in value.export_to
            return by_name or hidden or any(port.protocol is Protocol.UDP for port in value.ports)
    return False


def virtual_addresses(mesh: Mesh) -> Iterator[VirtualAddress]:
    for service in sorted(mesh.services(), key=lambda service: (service.namespace, service.host)):
        if service.headless or service.resolution is not Resolution.STATIC:
            continue
        for address in service.addresses:
            if "/" not in address:
                yield from _ports(mesh, service, address)


def _ports(mesh: Mesh, service: Service, address: str) -> Iterator[VirtualAddress]:
    version = ip_address(address).version
    for port in service.ports:
        targets = [
            (each, endpoint.port)
            for endpoint in mesh.endpoints(service, port)
            for each in (endpoint.address, *endpoint.extra_addresses)
            if _version(each) == version
        ]
        if targets:
            protocol = "udp" if port.protocol is Protocol.UDP else "tcp"
            yield VirtualAddress(address, port.number, tuple(targets), protocol)


def _lets_out(workload: Workload) -> bool:
    excluded = workload.exclude_outbound_ports or workload.exclude_outbound_ranges
    return bool(excluded) or workload.include_outbound_ranges != "*"


def _version(address: str) -> int:
    try:
        return ip_address(address).version
    except ValueError:
        return 0
