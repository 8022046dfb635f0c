"""Assigns IP addresses: one to each pod, and virtual addresses to services.

The caller passes the name of a pod or service and gets one address per IP family. A hash of the name decides the offset
in the address range; if another name has that offset, the next free one is used. So a restarted mesh gives most pods
and services the addresses they had before. A service without addresses of its own gets its virtual address when it
enters the mesh (`admit`).
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

# The low end of the service range is kept for addresses that users write in their Services. Kubernetes does the same.
_WRITTEN_BY_PEOPLE = 256


class Pair(msgspec.Struct, frozen=True):
    """An IPv4 address, and the IPv6 address that has the same offset in the IPv6 range. `ipv6` is None if the mesh
    has no IPv6."""

    ipv4: IPv4Address
    ipv6: IPv6Address | None = None

    @property
    def texts(self) -> tuple[str, ...]:
        return (str(self.ipv4),) if self.ipv6 is None else (str(self.ipv4), str(self.ipv6))


class Pool:
    """An IPv4 range and an IPv6 range with the same offsets. Each offset in use belongs to the name of a pod or
    service."""

    def __init__(self, ranges: tuple[IPv4Network, IPv6Network], *, first: int, what: str, ipv6: bool = True) -> None:
        self._ipv4, self._ipv6 = ranges
        self._first, self._what, self._with_ipv6 = first, what, ipv6
        self._size = self._ipv4.num_addresses - 1 - first  # the range's last address is the broadcast address
        self._by_name: dict[str, int] = {}
        self._owners: dict[int, str] = {}

    def take(self, name: str) -> Pair:
        """Return the address pair of `name`. The pair stays the same until `name` is released. Raises LocalError if no
        address is free."""
        offset = self._by_name.get(name)
        if offset is None:
            offset = self._free_place(name)
            self._by_name[name], self._owners[offset] = offset, name
        ipv6 = IPv6Address(int(self._ipv6.network_address) + offset) if self._with_ipv6 else None
        return Pair(IPv4Address(int(self._ipv4.network_address) + offset), ipv6)

    def reserve(self, address: str, name: str) -> str:
        """Reserve `address`, which a user has declared for `name`, so that `take` gives it to no other name. Return the
        name that owns the address already, or "" if there is no conflict."""
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
        what = f"no address is free: all {self._size} of {self._ipv4} are in use"
        raise LocalError(what, f"remove a {self._what} first", where=f"{self._what} {name}")


class Addresses:
    def __init__(self, *, ipv6: bool = True) -> None:
        self._ipv6 = ipv6
        # The first address of the pod range belongs to the bridge.
        self.pods = Pool(POD_RANGES, first=2, what="pod", ipv6=ipv6)
        self.services = Pool(SERVICE_RANGES, first=_WRITTEN_BY_PEOPLE, what="service", ipv6=ipv6)
        self._doubles: dict[str, Problem] = {}  # by service name: its declared address belongs to another service

    @property
    def bridge(self) -> tuple[IPv4Interface, IPv6Interface | None]:
        """Return the bridge's IPv4 and IPv6 address: the default gateway of every pod, on which the DNS server listens.
        The second is None if the mesh has no IPv6."""
        ipv4, ipv6 = POD_RANGES
        first = IPv6Interface((int(ipv6.network_address) + 1, ipv6.prefixlen)) if self._ipv6 else None
        return IPv4Interface((int(ipv4.network_address) + 1, ipv4.prefixlen)), first

    def admit(self, value: Value) -> Value:
        """Return `value` as it enters the mesh. A service that needs a virtual address and declares none gets one;
        any other value is returned unchanged. Addresses that a service declares are reserved for it."""
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
        """Like `admit`, but for a `value` from the mesh's recorded history: a service gets the virtual address that
        `admit` would give it, and any other value is returned unchanged. Addresses that the service declares are not
        reserved, and conflicts are not reported."""
        if not isinstance(value, Service) or value.addresses or not _needs_address(value):
            return value
        return msgspec.structs.replace(value, addresses=self.services.take(service_name(value)).texts)

    def keep_services(self, services: Iterable[Service]) -> tuple[Problem, ...]:
        """Release the addresses of all services except `services`. Return a problem for each remaining service whose
        declared address belongs to another service."""
        names = {service_name(service) for service in services}
        self.services.keep_only(names)
        self._doubles = {name: problem for name, problem in self._doubles.items() if name in names}
        return tuple(self._doubles.values())


def service_name(service: Service) -> str:
    """Return the name under which the address of `service` is kept. The namespace is part of the name, because two
    namespaces may declare the same external host."""
    return f"{service.namespace}/{service.host}"


def _double(service: Service, address: str, owner: str) -> Problem:
    where = where_of(service.origin, "" if service.origin else service_name(service))
    return Problem(
        where, f"address {address} is already used by {owner}", "use another address, or none: weft then assigns one"
    )


def _needs_address(service: Service) -> bool:
    # As in Istio's address allocation: no address where the caller's original destination is used (NONE), nor for a
    # wildcard host, which stands for many hosts.
    return not service.headless and service.resolution is not Resolution.NONE and not service.host.startswith("*")
