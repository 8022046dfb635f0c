"""Which service an address means, and in which ranges such addresses lie.

A ClusterIP has a range around it that is full of others; an address that somebody wrote into a ServiceEntry may be a
real one, and says nothing of those next to it. Rule: ranges never shrink, for whatever is made of them would be made
anew, and connections with it.
"""

from __future__ import annotations

from collections import defaultdict
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network

from weft.model.service import Service

_AROUND = {4: 16, 6: 112}  # Kubernetes' own ranges are mostly as wide, and seldom narrower
_ALLOTTED = ip_network("240.0.0.0/4")  # where Istio gives addresses to hosts that have none; nobody else may live there


class VirtualRanges:
    def __init__(self) -> None:
        self.ranges: tuple[str, ...] = ()
        self._networks: dict[IPv4Network | IPv6Network, None] = {}
        self._at: dict[str, dict[Service, None]] = defaultdict(dict)

    def add(self, service: Service) -> None:
        for address in own_addresses(service):
            self._at[address][service] = None
            found = _range_of(address, service)
            if found is not None and found not in self._networks:
                self._networks[found] = None
                self.ranges = tuple(sorted(map(str, self._networks)))

    def remove(self, service: Service) -> None:
        for address in own_addresses(service):
            self._at[address].pop(service, None)
            if not self._at[address]:
                del self._at[address]

    def at(self, address: str, port: int | None) -> list[Service]:
        """Whose an address is, with this port or with any, hidden or not."""
        return [service for service in self._at.get(address, ()) if port is None or service.port(port) is not None]

    def covers(self, service: Service) -> bool:
        """Whether calls to it are told from all others by an address of these ranges."""
        own = own_addresses(service)
        return (
            bool(own)
            and len(own) == len(service.addresses)
            and all(any(ip_address(each) in network for network in self._networks) for each in own)
        )


def own_addresses(service: Service) -> tuple[str, ...]:
    if service.headless:
        return ()
    return tuple(str(ip_address(address)) for address in service.addresses if address and "/" not in address)


def _range_of(address: str, service: Service) -> IPv4Network | IPv6Network | None:
    found = ip_address(address)
    if service.origin is not None and service.origin.key.kind == "ServiceEntry":
        return _ALLOTTED if found in _ALLOTTED else None
    return ip_network(f"{address}/{_AROUND[found.version]}", strict=False)
