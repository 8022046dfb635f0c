"""Addresses: each pod's own, and the virtual ones of services. The engine asks by name and gets one address per family.

The place in the range is told from the name, and a taken place is stepped over, so a mesh that starts again gives
everybody the address it had. Services without an address of their own get one on their way into the mesh (`admit`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Interface, IPv6Network, ip_address

import msgspec

from weft.base.problem import Problem
from weft.local.error import LocalError
from weft.model.names import where_of
from weft.model.service import Resolution, Service
from weft.model.value import Value

POD_RANGES = (IPv4Network("10.244.0.0/16"), IPv6Network("fd00:10:244::/64"))
SERVICE_RANGES = (IPv4Network("10.96.0.0/16"), IPv6Network("fd00:10:96::/64"))

# Kubernetes, too, keeps the low end of a service range for addresses that people write down themselves.
_WRITTEN_BY_PEOPLE = 256


class Pair(msgspec.Struct, frozen=True):
    """One place in a range: the same offset in both families."""

    ipv4: IPv4Address
    ipv6: IPv6Address | None = None

    @property
    def texts(self) -> tuple[str, ...]:
        return (str(self.ipv4),) if self.ipv6 is None else (str(self.ipv4), str(self.ipv6))


class Pool:
    """Places in one range, by name."""

    def __init__(self, ranges: tuple[IPv4Network, IPv6Network], *, first: int, what: str, ipv6: bool = True) -> None:
        self._ipv4, self._ipv6 = ranges
        self._first, self._what, self._with_ipv6 = first, what, ipv6
        self._size = self._ipv4.num_addresses - 1 - first  # the last one is the broadcast address
        self._by_name: dict[str, int] = {}
        self._owners: dict[int, str] = {}

    def take(self, name: str) -> Pair:
        """The name's place; the same for as long as the name is kept."""
        offset = self._by_name.get(name)
        if offset is None:
            offset = self._free_place(name)
            self._by_name[name], self._owners[offset] = offset, name
        ipv6 = IPv6Address(int(self._ipv6.network_address) + offset) if self._with_ipv6 else None
        return Pair(IPv4Address(int(self._ipv4.network_address) + offset), ipv6)

    def reserve(self, address: str, name: str) -> str:
        """Keep an address that somebody wrote down from being given to others. Says whose it is already, if so."""
        try:
            parsed = ip_address(address)
        except ValueError:
            return ""
        network = self._ipv4 if parsed.version == 4 else self._ipv6
        if parsed not in network:
            return ""
        owner = self._owners.setdefault(int(parsed) - int(network.network_address), name)
        return "" if owner == name else owner

    def release(self, name: str) -> None:
        self._by_name.pop(name, None)
        for offset in [offset for offset, owner in self._owners.items() if owner == name]:
            del self._owners[offset]

    def keep_only(self, names: set[str]) -> None:
        for name in set(self._owners.values()) - names:
            self.release(name)

    def _free_place(self, name: str) -> int:
        start = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest()) % self._size
        for step in range(self._size):
            offset = self._first + (start + step) % self._size
            if offset not in self._owners:
                return offset
        what = f"no address is left: all {self._size} of {self._ipv4} are taken"
        raise LocalError(what, f"remove a {self._what} first", where=f"{self._what} {name}")


class Addresses:
    def __init__(self, *, ipv6: bool = True) -> None:
        self._ipv6 = ipv6
        # The first address of the range is the bridge's.
        self.pods = Pool(POD_RANGES, first=2, what="pod", ipv6=ipv6)
        self.services = Pool(SERVICE_RANGES, first=_WRITTEN_BY_PEOPLE, what="service", ipv6=ipv6)
        self._doubles: dict[str, Problem] = {}  # by service: an address it wrote down that is another's

    @property
    def bridge(self) -> tuple[IPv4Interface, IPv6Interface | None]:
        """The gateway of every pod, and where its DNS answers."""
        ipv4, ipv6 = POD_RANGES
        first = IPv6Interface((int(ipv6.network_address) + 1, ipv6.prefixlen)) if self._ipv6 else None
        return IPv4Interface((int(ipv4.network_address) + 1, ipv4.prefixlen)), first

    def admit(self, value: Value) -> Value:
        """Give a service that needs a virtual address one; anything else passes as it is."""
        if not isinstance(value, Service):
            return value
        name = service_name(value)
        self._doubles.pop(name, None)
        for address in value.addresses:
            owner = self.services.reserve(address, name)
            if owner:
                self._doubles[name] = _double(value, address, owner)
        if value.addresses or not _needs_address(value):
            return value
        return msgspec.structs.replace(value, addresses=self.services.take(name).texts)

    def readmit(self, value: Value) -> Value:
        """The same for a service that was there once: it takes nobody's address, and nobody is told of doubles."""
        if not isinstance(value, Service) or value.addresses or not _needs_address(value):
            return value
        return msgspec.structs.replace(value, addresses=self.services.take(service_name(value)).texts)

    def keep_services(self, services: Iterable[Service]) -> tuple[Problem, ...]:
        """Forget all services but these; returns which of them have an address that is another's."""
        names = {service_name(service) for service in services}
        self.services.keep_only(names)
        self._doubles = {name: problem for name, problem in self._doubles.items() if name in names}
        return tuple(self._doubles.values())


def service_name(service: Service) -> str:
    """What a service's place is kept under: two namespaces may name the same outside host."""
    return f"{service.namespace}/{service.host}"


def _double(service: Service, address: str, owner: str) -> Problem:
    where = where_of(service.origin, "" if service.origin else service_name(service))
    return Problem(where, f"address {address} belongs to {owner} already", "write another one, or none at all")


def _needs_address(service: Service) -> bool:
    # As Istio's allocation: not where the caller's own destination decides, nor for a host that is many.
    return not service.headless and service.resolution is not Resolution.NONE and not service.host.startswith("*")
