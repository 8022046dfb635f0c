"""Looks up DNS names for pods: services, pods of headless services, and hosts of ServiceEntries, with their addresses.

A `NameLookup` is rebuilt when the mesh changes; `local/dns.py` and `weft explain` use it. A lookup has three possible
results: addresses (possibly none of the requested family); no such name; or not a name of the mesh, in which case the
query is forwarded to the machine's own resolvers. Reverse lookups of the mesh's addresses are never forwarded.
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Network, IPv6Network, ip_address

import msgspec

from weft.api.syntax import is_address
from weft.model.instance import Instance
from weft.model.names import selects
from weft.model.scope import exported
from weft.model.service import Service


class Found(msgspec.Struct, frozen=True):
    """The result for a name that exists. `addresses` may contain no address of the requested family. `names`: the
    result of a reverse lookup."""

    addresses: tuple[str, ...] = ()
    names: tuple[str, ...] = ()  # for a reverse lookup: the names of the address

    def of_version(self, version: int) -> tuple[str, ...]:
        return tuple(address for address in self.addresses if ip_address(address).version == version)


class NoSuchName(msgspec.Struct, frozen=True):
    """The result for a name that is in a domain of the mesh, but does not exist."""


class NotOurs(msgspec.Struct, frozen=True):
    """The result for a name that does not belong to the mesh; the query is forwarded."""


Answer = Found | NoSuchName | NotOurs


class _Entry(msgspec.Struct, frozen=True):
    service: Service
    found: Found


class NameLookup:
    def __init__(
        self,
        services: Iterable[Service],
        instances: Iterable[Instance],
        domain: str,
        ranges: Iterable[IPv4Network | IPv6Network] = (),
    ) -> None:
        """Index these services and instances. `domain`: the mesh's DNS domain, such as `cluster.local`. `ranges`: the
        mesh's address ranges; reverse lookups in them are answered here and not forwarded."""
        self._domain = domain
        self._reverse_zones = tuple(map(_reverse_zone, ranges))
        self._hosts: dict[str, list[_Entry]] = {}
        self._pods: dict[str, Found] = {}  # by POD.SERVICE.NAMESPACE.svc.DOMAIN; only of headless services
        self._parents: set[str] = {domain, f"svc.{domain}"}
        by_namespace: dict[str, list[Instance]] = {}
        for instance in instances:
            by_namespace.setdefault(instance.namespace, []).append(instance)
        for service in services:
            self._add(service, by_namespace.get(service.namespace, []))

    def look_up_for_proxy(self, name: str, namespace: str) -> Answer:
        """Look up a name for the proxy of a pod in this namespace. Hosts outside the mesh are `NotOurs`, so that they
        resolve to their real addresses: a proxy cannot connect to a virtual address."""
        inside = name == self._domain or name.endswith(f".{self._domain}")
        return self.look_up(name, namespace) if inside else NotOurs()

    def look_up(self, name: str, namespace: str) -> Answer:
        """Look up a name for a pod of this namespace. The name is in lower case, without a trailing dot."""
        if any(name == zone or name.endswith(f".{zone}") for zone in self._reverse_zones):
            return self._reverse(name, namespace)
        for host in self.readings(name, namespace):
            entry = self._visible(host, namespace)
            if entry is not None:
                return entry.found
            if host in self._pods:
                return self._pods[host]
        if name == self._domain or name.endswith(f".{self._domain}"):
            # A name with names below it exists, even where it has no records (RFC 8020).
            return Found() if name in self._parents else NoSuchName()
        wildcard = self._wildcard(name, namespace)
        return wildcard if wildcard is not None else NotOurs()

    def _reverse(self, name: str, namespace: str) -> Answer:
        """Return the result of a reverse lookup: the names of the address that `name` (such as `1.0.0.10.in-addr.arpa`)
        stands for. Reverse lookups of the mesh's addresses are never forwarded: outside resolvers cannot answer them,
        and should not see them."""
        address = _reverse_address(name)
        if address is None:
            return Found()  # a zone above addresses, or a malformed address
        pods = [host for host, answer in self._pods.items() if address in answer.addresses]
        hosts = [host for host, entries in self._hosts.items() if any(address in e.found.addresses for e in entries)]
        seen = [host for host in hosts if self._visible(host, namespace) and not host.startswith("*")]
        return Found(names=tuple(pods or seen[:1])) if pods or seen else NoSuchName()

    def readings(self, name: str, namespace: str) -> Iterable[str]:
        """Yield the full host names that a short name may stand for, as in Istio's DNS proxy."""
        yield name
        dots = name.count(".")
        if dots == 0:
            yield f"{name}.{namespace}.svc.{self._domain}"
        elif dots == 1:
            yield f"{name}.svc.{self._domain}"
        elif name.endswith(".svc"):
            yield f"{name}.{self._domain}"

    def _visible(self, host: str, namespace: str) -> _Entry | None:
        entries = self._hosts.get(host, ())
        seen = [e for e in entries if exported(e.service.export_to, owner=e.service.namespace, viewer=namespace)]
        return min(seen, key=lambda e: e.service.namespace != namespace) if seen else None

    def _wildcard(self, name: str, namespace: str) -> Found | None:
        rest = name
        while "." in rest:
            rest = rest.split(".", 1)[1]
            entry = self._visible(f"*.{rest}", namespace)
            if entry is not None and entry.found.addresses:
                return entry.found
        return None

    def _add(self, service: Service, instances: list[Instance]) -> None:
        addresses = self._add_pods(service, instances) if service.headless else _served(service, instances)
        local = service.host.endswith(f".{self._domain}")
        # An outside host without a virtual address is not indexed, so it resolves to its real address.
        if addresses or local:
            self._hosts.setdefault(service.host.lower(), []).append(_Entry(service, Found(addresses)))
        if local:
            self._parents.add(service.host.lower().split(".", 1)[1])

    def _add_pods(self, service: Service, instances: list[Instance]) -> tuple[str, ...]:
        addresses: list[str] = []
        for instance in instances:
            if service.selector and selects(service.selector, instance.labels):
                if not (instance.ready or service.publish_not_ready):
                    continue
                own = tuple(address for address in instance.addresses if is_address(address))
                self._pods[f"{instance.name}.{service.host}".lower()] = Found(own)
                addresses += own
        return (*addresses, *(e.address for e in service.static_endpoints if is_address(e.address)))


def _reverse_zone(network: IPv4Network | IPv6Network) -> str:
    bits = 8 if network.version == 4 else 4  # bits that one DNS label of a reverse name stands for
    labels = network.network_address.reverse_pointer.split(".")
    return ".".join(labels[(network.max_prefixlen - network.prefixlen) // bits :])


def _reverse_address(name: str) -> str | None:
    *labels, family, _ = name.split(".")
    digits = labels[::-1]
    text = ".".join(digits) if family == "in-addr" else ":".join("".join(digits[i : i + 4]) for i in range(0, 32, 4))
    try:
        address = ip_address(text)
    except ValueError:
        return None
    return str(address) if address.reverse_pointer == name else None


def _served(service: Service, instances: list[Instance]) -> tuple[str, ...]:
    """Return the service's addresses of the IP families that its ready pods have; all its addresses while no pod is
    ready."""
    addresses = [address for address in service.addresses if is_address(address)]
    members = [each for each in instances if service.selector and each.ready and selects(service.selector, each.labels)]
    versions = {ip_address(text).version for each in members for text in each.addresses if is_address(text)}
    return tuple(address for address in addresses if not versions or ip_address(address).version in versions)
