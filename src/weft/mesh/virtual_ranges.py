"""Maps virtual addresses to their services, and computes the ranges that contain such addresses.

The range around a ClusterIP is full of other ClusterIPs. An address in a ServiceEntry, however, may be a real one,
and implies nothing about its neighbours. Rule: ranges never shrink, because Envoy would rebuild the listeners of
these ranges and close their connections.
"""

from __future__ import annotations

from collections import defaultdict
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network

from weft.model.service import Service

_AROUND = {4: 16, 6: 112}  # prefix lengths; Kubernetes' service ranges are mostly this wide, and seldom narrower
_ALLOTTED = ip_network("240.0.0.0/4")  # where Istio allocates addresses for hosts without one; reserved otherwise


class VirtualRanges:
    def __init__(self) -> None:
        self.ranges: tuple[str, ...] = ()
        self._networks: dict[IPv4Network | IPv6Network, None] = {}
        self._at: dict[str, dict[Service, None]] = defaultdict(dict)

    def add(self, service: Service) -> None:
        for address in own_addresses(service):
            self._at[address][service] = None
            network = _range_of(address, service)
            if network is not None and network not in self._networks:
                self._networks[network] = None
                self.ranges = tuple(sorted(map(str, self._networks)))

    def remove(self, service: Service) -> None:
        for address in own_addresses(service):
            self._at[address].pop(service, None)
            if not self._at[address]:
                del self._at[address]

    def at(self, address: str, port: int | None) -> list[Service]:
        """The services with this address and port (if `port` is None, with any port), including those that are not
        exported."""
        return [service for service in self._at.get(address, ()) if port is None or service.port(port) is not None]

    def covers(self, service: Service) -> bool:
        """Whether a call to the service can be identified by its destination address: the service has only virtual
        addresses of its own, and all of them lie in the known ranges."""
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
    ip = ip_address(address)
    if service.origin is not None and service.origin.key.kind == "ServiceEntry":
        return _ALLOTTED if ip in _ALLOTTED else None
    return ip_network(f"{address}/{_AROUND[ip.version]}", strict=False)
