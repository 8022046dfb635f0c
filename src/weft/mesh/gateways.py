"""Computes what gateway proxies serve: which Gateways select a proxy, on which ports it listens for their servers,
and which VirtualServices it serves under which hosts.

`mesh.py` owns the index of Gateways; everything else is pure functions. Rule: the oldest Gateway decides. A port has
the protocol of its first server, and a TLS server name (SNI) belongs to the first server that has it. Later servers are
left out, because Envoy would reject the whole listener.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

import msgspec

from weft.mesh.claims import patterns
from weft.model.edge import ANY, AUTHORITIES, BoundServer, Edge, ServedHost, ServedName, narrower
from weft.model.gateway import Gateway, GatewayServer, ServerTls
from weft.model.group import Group
from weft.model.names import CredentialRef, host_covers, selects
from weft.model.proxy import OWN_PORTS
from weft.model.virtual_service import HttpRoute, L4Route, VirtualService

_FEW_NAMES = 50  # TLS server names of one port: each server lists all others, so the config grows with their square


class Gateways:
    def __init__(self) -> None:
        self._all: list[Gateway] = []

    def __bool__(self) -> bool:
        return bool(self._all)

    def add(self, gateway: Gateway) -> None:
        self._all.append(gateway)
        self._all.sort(key=age)

    def remove(self, gateway: Gateway) -> None:
        self._all.remove(gateway)

    def present(self, credential: CredentialRef) -> bool:
        """Whether a Gateway presents this Secret's certificate to backends."""
        return any(each.client_certificate == credential for each in self._all)

    def of(self, group: Group) -> tuple[Gateway, ...]:
        """The Gateways that select a group's workloads, the oldest first."""
        return tuple(
            each for each in self._all if each.within in ("", group.namespace) and selects(each.selector, group.labels)
        )


def bound(gateways: Iterable[Gateway], targets: Callable[[int], Iterable[int]]) -> tuple[BoundServer, ...]:
    """The servers of these Gateways, bound to the ports where the proxy listens; a server that conflicts with an
    earlier one is left out. `targets`: returns the workload's target ports for a port of its Services; empty if no
    Service has the port, so that the server's own port is used."""
    speaking: dict[tuple[str, int], str] = {}
    taken: dict[tuple[str, int], set[str]] = {}
    servers: list[BoundServer] = []
    for gateway in gateways:
        for index, server in enumerate(gateway.servers):
            hosts = tuple(served_host(gateway, host) for host in server.hosts)
            for number in tuple(targets(server.port.number)) or (server.port.number,):
                entry = BoundServer(gateway.key, server, number, hosts, index, gateway.origin)
                if number in OWN_PORTS or speaking.setdefault(entry.door, spoken(server)) != spoken(server):
                    continue
                if server.encrypted or not server.is_http:
                    names = taken.setdefault(entry.door, set())
                    own = tuple(each for each in hosts if _name(server, each) not in names)
                    names.update(_name(server, each) for each in own)
                    entry = msgspec.structs.replace(entry, hosts=own)
                if entry.hosts:
                    servers.append(entry)
    return tuple(servers)


def edge(
    servers: Sequence[BoundServer],
    routings: Callable[[str], Iterable[VirtualService]],
    leads_to: Callable[[VirtualService], Iterable[str]],
    asked: Iterable[str] = (),
) -> Edge:
    """The Edge of gateway proxies with these servers: the hosts they serve, with their routes and destinations.
    `routings`: the VirtualServices bound to a Gateway that these proxies may see, the oldest first. `leads_to`: the
    hosts that a VirtualService or its delegates route to. `asked`: hosts that the proxies themselves call, such as
    external authorizers; they are added to the destinations."""
    together: dict[str, list[BoundServer]] = {}  # by route configuration
    streams: dict[BoundServer, tuple[VirtualService, ...]] = {}
    for server in servers:
        if server.server.is_http:
            together.setdefault(server.route_name, []).append(server)
        else:
            streams[server] = tuple(
                _as_taken(each, (server.gateway,))
                for each in routings(server.gateway)
                if any(server.admits(each, name) for name in _met(server, each))
            )
    owners: dict[tuple[str, int], dict[str, str]] = {}  # TLS, by address and port: the route configuration of each host
    for server in servers:
        if server.server.encrypted:
            owners.setdefault(server.door, {}).update((each.host, server.route_name) for each in server.hosts)
    indexes: dict[tuple[str, ...], _ByHost] = {}
    doors: dict[str, list[ServedName]] = {}
    for name, members in together.items():
        gateways = tuple(dict.fromkeys(server.gateway for server in members))
        if gateways not in indexes:
            indexes[gateways] = _by_host(routing for gateway in gateways for routing in routings(gateway))
        known, names = indexes[gateways], owners.get(members[0].door, {})
        domains = {domain for server in members for domain in _domains(server, known)} | _beside(name, members, names)
        for domain in sorted(domains):
            misdirected = _owner(domain, names) not in ("", name)
            number = members[0].server.port.number
            doors.setdefault(domain, []).append(
                ServedName(name, number, gateways, misdirected=True)
                if misdirected
                else _served_name(name, domain, members, known)
            )
    met = {each for served in doors.values() for door in served for each in door.routes}
    met.update(each for stream_routings in streams.values() for each in stream_routings)
    destinations = {host for each in met for host in leads_to(each)} | set(asked)
    return Edge({domain: tuple(served) for domain, served in doors.items()}, streams, frozenset(destinations))


def references(tls: ServerTls | None) -> tuple[CredentialRef, ...]:
    """The Secrets that a server with the TLS settings `tls` needs. CA certificates for client certificates may be in a
    separate Secret NAME-cacert, where NAME is the Secret with the server's certificate. A server that requests no
    client certificate does not need NAME-cacert, and may not even be allowed to read it."""
    if tls is None:
        return ()
    own = (*tls.credentials, *((tls.authorities_credential,) if tls.authorities_credential else ()))
    if not tls.asks:
        return own
    return (*own, *(CredentialRef(f"{each.name}{AUTHORITIES}", each.namespace) for each in tls.credentials[:1]))


def vouching(tls: ServerTls) -> tuple[CredentialRef, ...]:
    """The Secrets that are searched for the CA certificates with which a server verifies its clients, in this order:
    only the Secret that is configured for them, if there is one; else NAME-cacert, then NAME itself, where NAME is the
    Secret with the server's certificate. `tls`: the TLS settings of the server."""
    if tls.authorities_credential is not None:
        return (tls.authorities_credential,)
    first = tls.credentials[:1]
    return (*(CredentialRef(f"{each.name}{AUTHORITIES}", each.namespace) for each in first), *first)


def age(gateway: Gateway) -> tuple[str, str, str]:
    """Sort key: the oldest Gateway first, then by name. A Gateway of unknown age counts as the newest."""
    return (gateway.created or "9999", gateway.namespace, gateway.name)


def spoken(server: GatewayServer) -> str:
    """The transport of a server: `tls`, `http` or `tcp`. All servers of one port must have the same."""
    return "tls" if server.encrypted else "http" if server.is_http else "tcp"


_ByHost = Mapping[str, Sequence[VirtualService]]  # VirtualServices with HTTP routes by host, the oldest first


def _by_host(routings: Iterable[VirtualService]) -> _ByHost:
    by_host: dict[str, list[VirtualService]] = {}
    for routing in _in_order(each for each in routings if each.http):
        for host in routing.hosts:
            by_host.setdefault(host, []).append(routing)
    return by_host


def _served_name(name: str, domain: str, members: list[BoundServer], known: _ByHost) -> ServedName:
    """The virtual host of `domain` in the route configuration `name`. It gets the routes of every VirtualService that
    meets a server of the route configuration at this domain: of the server's host and the VirtualService's host, one
    covers the other, and `domain` is the narrower one. For example, server `x.a.com` and VirtualService `*` meet at
    `x.a.com`. If no VirtualService meets a server there, the VirtualServices with the most specific host that covers
    the domain apply. `members`: the servers of the route configuration. `known`: the VirtualServices by host."""
    serving = [server for server in members if any(host_covers(each.host, domain) for each in server.hosts)]
    covering = [known.get(pattern, ()) for pattern in patterns(domain)]  # the most specific first
    met = (
        each for candidates in covering for each in candidates if any(server.meets(each, domain) for server in serving)
    )
    routes = tuple(_in_order(met))
    for candidates in covering:
        if routes:
            break
        routes = tuple(each for each in candidates if any(server.admits(each, domain) for server in serving))
    gateways = tuple(dict.fromkeys(server.gateway for server in serving))
    return ServedName(
        name,
        serving[0].server.port.number,
        gateways,
        tuple(_as_taken(each, gateways) for each in routes),
        encrypted=serving[0].server.encrypted,
        redirects=any(server.server.redirects and _speaks(server, domain, routes) for server in serving),
    )


def _speaks(server: BoundServer, domain: str, routes: tuple[VirtualService, ...]) -> bool:
    """Whether a server is responsible for a domain: it lists exactly this domain as a host, or it admits one of
    `routes`, the VirtualServices of the domain. A server that only covers the domain with a wider host is not
    responsible."""
    return any(each.host == domain for each in server.hosts) or any(server.admits(each, domain) for each in routes)


_Route = TypeVar("_Route", HttpRoute, L4Route)


def _as_taken(routing: VirtualService, gateways: tuple[str, ...]) -> VirtualService:
    """The VirtualService `routing` without the routes and matches that are only for gateways other than `gateways`."""
    return msgspec.structs.replace(
        routing,
        http=tuple(_taken(routing.http, gateways)),
        tls=tuple(_taken(routing.tls, gateways)),
        tcp=tuple(_taken(routing.tcp, gateways)),
    )


def _taken(routes: tuple[_Route, ...], gateways: tuple[str, ...]) -> Iterator[_Route]:
    for route in routes:
        if not any(match.gateways for match in route.match):
            yield route
            continue
        left = [match for match in route.match if not match.gateways or not set(match.gateways).isdisjoint(gateways)]
        if left:
            yield msgspec.structs.replace(route, match=tuple(left))


def _domains(server: BoundServer, known: _ByHost) -> set[str]:
    """The domains for which a server has virtual hosts. If a host of the server and a host of a VirtualService that it
    admits overlap, the narrower of the two is such a domain: server `*.a.com` and VirtualService `x.a.com` give the
    domain `x.a.com`. A server that redirects to HTTPS needs no routes, so all of its hosts are included. `known`: the
    VirtualServices by host."""
    domains = {each.host for each in server.hosts} if server.server.redirects else set()
    for served in server.hosts:

        def has(host: str, served: ServedHost = served) -> bool:
            return any(served.admits(each) and server.gateway in each.gateways for each in known.get(host, ()))

        if any(has(pattern) for pattern in patterns(served.host)):
            domains.add(served.host)
        if served.host.startswith("*"):
            domains.update(host for host in known if host_covers(served.host, host) and has(host))
    return domains


def _beside(route_name: str, members: Sequence[BoundServer], names: Mapping[str, str]) -> set[str]:
    """The hosts that must be added to the route configuration `route_name` of one TLS server (`members`), because other
    TLS servers on the same port have them: a client may reuse an HTTP/2 connection for such a host, and then gets 421
    (misdirected). If there are few hosts, all hosts of the other servers are added; otherwise only those that a
    wildcard of this server covers. If an added host is a wildcard that covers a host of this server, that host is added
    too, so that requests for it are still served. `names`: the route configuration of each host, as for `_owner`."""
    own = {each.host for server in members for each in server.hosts}
    wide = [host for host in own if host.startswith("*")]
    few = len(names) <= _FEW_NAMES
    others = [
        host
        for host, owner in (names.items() if wide or few else ())
        if owner != route_name and (few or any(host_covers(each, host) for each in wide))
    ]
    wider = [host for host in others if host.startswith("*")]
    return {*others, *(host for host in own if any(host_covers(each, host) for each in wider))}


def _owner(domain: str, names: Mapping[str, str]) -> str:
    """The route configuration of the server whose host covers the domain most specifically; "" if no host does.
    `names`: the route configuration of each server's host. Only that server may serve the domain, because it may
    require more of clients than others, such as a certificate."""
    return next((names[pattern] for pattern in patterns(domain) if pattern in names), "")


def _met(server: BoundServer, routing: VirtualService) -> set[str]:
    hosts = {narrower(each.host, host) for each in server.hosts if each.admits(routing) for host in routing.hosts}
    return hosts - {""}


def _in_order(routings: Iterable[VirtualService]) -> list[VirtualService]:
    return sorted(dict.fromkeys(routings), key=lambda each: (each.created or "9999", each.namespace, each.name))


def served_host(gateway: Gateway, written: str) -> ServedHost:
    """Parse a host of a Gateway's server (`written`): HOST, or NAMESPACE/HOST, which allows only VirtualServices of
    that namespace."""
    namespace, slash, host = written.rpartition("/")
    if not slash:
        namespace = ANY
    # SNI has no trailing dot. If the dot were kept, another server could claim the same name.
    return ServedHost(gateway.namespace if namespace == "." else namespace, host.lower().removesuffix("."))


def _name(server: GatewayServer, served: ServedHost) -> str:
    """The name by which a proxy distinguishes connections to this host of a server from connections to other servers on
    the same port: the host itself (as SNI) if the server has TLS, else ANY."""
    return served.host if server.encrypted else ANY
