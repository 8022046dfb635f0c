"""Visibility of services and routes. Two things decide: exportTo of the service or route, and the egress hosts of
the Sidecar that applies to the viewing proxies."""

from __future__ import annotations

from enum import IntEnum

import msgspec

from weft.model.edge import BoundServer
from weft.model.names import ObjectKey, host_covers
from weft.model.service import Protocol, Resolution, Service, ServicePort
from weft.model.sidecar import Sidecar


class OwnAddress(msgspec.Struct, frozen=True):
    """The address at which workloads call the hosts of a Sidecar's egress listener, in place of the addresses of the
    services (`bind`). `address`: an IP address, or `unix:///PATH`. `captured`: calls to it are intercepted; else the
    proxy listens there. `sidecar`: the Sidecar's key; None if it is not known."""

    address: str
    captured: bool
    sidecar: ObjectKey | None = None

    @property
    def is_path(self) -> bool:
        return self.address.startswith("unix:")


class OwnListener(msgspec.Struct, frozen=True):
    """A listener of a Sidecar's egress with an address of its own (`at`), and the port of a service that is called
    there (`port`). `number`: the port of the listener; 0 for a Unix socket."""

    at: OwnAddress
    number: int
    port: ServicePort


class Import(msgspec.Struct, frozen=True):
    """One entry of a Sidecar's egress hosts. `namespace`: the namespace of the imported services; "*" for any. `port`:
    the imported port; 0 for all ports. `protocol`: the protocol of that port for the Sidecar's workloads; UNDECLARED if
    it is the one that the service declares. `own`: the egress listener's own address, at which these services are
    called; None if they are called at the services' addresses."""

    namespace: str
    host: str
    port: int = 0
    protocol: Protocol = Protocol.UNDECLARED
    own: OwnAddress | None = None

    def covers(self, namespace: str, host: str) -> bool:
        return self.namespace in ("*", namespace) and host_covers(self.host, host)


class Scope(msgspec.Struct, frozen=True, cache_hash=True):
    """The services that some proxies may see: all proxies of one namespace, or those that one Sidecar selects in it.
    `imports`: the Sidecar's egress hosts; None for everything that is exported to the namespace. `asked`: hosts and
    ports of services that the proxies themselves call, which are always visible. `servers`: the servers of a gateway,
    which sees only the services that the routes of these servers name; None for sidecars."""

    namespace: str
    imports: tuple[Import, ...] | None = None
    asked: tuple[tuple[str, int], ...] = ()
    servers: tuple[BoundServer, ...] | None = None

    def ports(self, service: Service) -> tuple[ServicePort, ...]:
        """The ports of a service that are visible in this scope; empty if the service is hidden."""
        shown = self.addressed(service)
        own = {each.port.number for each in self.own_listeners(service)} - {port.number for port in shown}
        return (*shown, *(port for port in service.ports if port.number in own)) if own else shown

    def addressed(self, service: Service) -> tuple[ServicePort, ...]:
        """The ports of a service that are called at the service's own addresses: all visible ports, except those of
        egress listeners with an address of their own."""
        shown = self._shown(service)
        asked = {number for host, number in self.asked if host == service.host} if self.asked else ()
        if not asked:
            return shown
        spoken = {port.number: port for port in shown}
        visible = (spoken.get(port.number) or (port if port.number in asked else None) for port in service.ports)
        return tuple(port for port in visible if port is not None)

    def own_listeners(self, service: Service) -> tuple[OwnListener, ...]:
        """The egress listeners with an address of their own at which a service is called. As in Istio, if a listener
        has another port number than the service, it leads to the service's only port. The result is empty for a service
        whose callers choose the address of an endpoint (headless, or `resolution: NONE`): a call to such a listener
        names no endpoint."""
        if not self.has_own_listeners or service.headless or service.resolution is Resolution.NONE:
            return ()
        if not exported(service.export_to, owner=service.namespace, viewer=self.namespace):
            return ()
        found: dict[tuple[str, int], OwnListener] = {}
        for entry in self.imports or ():
            if entry.own is None or not entry.covers(service.namespace, service.host):
                continue
            at_port = [port for port in service.ports if port.number == (entry.port or port.number)]
            called = () if entry.own.is_path and len(service.ports) > 1 else at_port
            for port in called or (service.ports if len(service.ports) == 1 else ()):
                number = 0 if entry.own.is_path else entry.port or port.number
                spoken = _as_spoken(port, entry.protocol)
                found.setdefault((entry.own.address, number), OwnListener(entry.own, number, spoken))
        return tuple(found.values())

    @property
    def has_own_listeners(self) -> bool:
        return any(entry.own for entry in self.imports or ())

    def sees_routes(self, namespace: str, host: str) -> bool:
        """Whether a VirtualService of that namespace applies to that host in this scope."""
        return self.imports is None or any(entry.covers(namespace, host) for entry in self.imports)

    def may_see_routes(self, namespace: str, pattern: str) -> bool:
        """Whether a VirtualService of that namespace applies, in this scope, to some host that the pattern covers."""
        return self.sees_routes(namespace, pattern) or any(
            entry.namespace in ("*", namespace) and host_covers(pattern, entry.host) for entry in self.imports or ()
        )

    def _shown(self, service: Service) -> tuple[ServicePort, ...]:
        """The ports of a service that the workloads in this scope may call themselves. `ports` also includes ports
        that only their proxies call, such as that of an external authorizer."""
        if not exported(service.export_to, owner=service.namespace, viewer=self.namespace):
            return ()
        if self.imports is None:
            return service.ports
        spoken: dict[int, Protocol] = {}
        for entry in self.imports:
            if entry.own is None and entry.covers(service.namespace, service.host):
                spoken.setdefault(entry.port, entry.protocol)
        if spoken.keys() == {0}:
            return service.ports
        shown = (port for port in service.ports if 0 in spoken or port.number in spoken)
        return tuple(_as_spoken(port, spoken.get(port.number, Protocol.UNDECLARED)) for port in shown)


def scope_of(namespace: str, sidecar: Sidecar | None, asked: tuple[tuple[str, int], ...] = ()) -> Scope:
    if sidecar is None or not sidecar.egress:
        return Scope(namespace, asked=asked)
    imports = [
        Import(
            namespace if owner == "." else owner,
            host,
            listener.port.number if listener.port else 0,
            listener.port.protocol if listener.port else Protocol.UNDECLARED,
            OwnAddress(listener.bind, listener.captured, sidecar.origin.key if sidecar.origin else None)
            if listener.bind
            else None,
        )
        for listener in sidecar.egress
        for owner, host in (entry.split("/", 1) if "/" in entry else ("*", entry) for entry in listener.hosts)
        if owner != "~"
    ]
    return Scope(namespace, tuple(imports), asked)


def _as_spoken(port: ServicePort, protocol: Protocol) -> ServicePort:
    if Protocol.UDP in (port.protocol, protocol) or protocol in (Protocol.UNDECLARED, port.protocol):
        return port
    return msgspec.structs.replace(port, protocol=protocol)


class Audience(IntEnum):
    """How an object is exported to one caller that sees it. PUBLIC: to all namespaces. Otherwise `exportTo` lists
    namespaces: OWN means that the caller is in the object's own namespace, NAMED that it is in another one. An object
    with a smaller value takes precedence."""

    OWN = 0
    NAMED = 1
    PUBLIC = 2


def audience(export_to: tuple[str, ...], *, owner: str, viewer: str) -> Audience:
    """Return how an object of the namespace `owner`, whose `exportTo` is `export_to`, is exported to the namespace
    `viewer`. The object must be exported there."""
    if not export_to or "*" in export_to:
        return Audience.PUBLIC
    return Audience.OWN if owner == viewer else Audience.NAMED


def exported(export_to: tuple[str, ...], *, owner: str, viewer: str) -> bool:
    if not export_to or "*" in export_to:
        return True
    return viewer in export_to or ("." in export_to and owner == viewer)
