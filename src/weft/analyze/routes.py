"""Findings about VirtualServices for hosts or gateways that do not exist, or with routes for a protocol that no port
of the host carries. `gateway_routes.py` checks VirtualServices at gateways, `translate/findings.py` checks the
destinations of http routes."""

from __future__ import annotations

from collections.abc import Iterator

from weft.analyze.conditions import matches
from weft.analyze.facts import Facts
from weft.analyze.finding import finding, meant_host
from weft.api.syntax import is_address
from weft.base.problem import Problem
from weft.base.suggest import did_you_mean
from weft.mesh.claims import strength
from weft.mesh.virtual_services import is_exported
from weft.model.service import Protocol
from weft.model.virtual_service import MESH, VirtualService


def of_routes(facts: Facts) -> Iterator[Problem]:
    delegates = {
        (route.delegate.namespace, route.delegate.name)
        for routing in facts.virtual_services
        for route in routing.http
        if route.delegate is not None
    }
    yield from _of_gateway_owners(facts)
    for routing in facts.virtual_services:
        if MESH in routing.gateways:
            yield from _of_hosts(routing, facts)
            yield from _of_owners(routing, facts)
            yield from _of_kinds(routing, facts)
        yield from _of_gateways(routing, facts)
        if not routing.hosts and (routing.namespace, routing.name) not in delegates:
            what = "the VirtualService has no hosts, and no other VirtualService delegates to it: it is never used"
            yield finding(
                "WFT0121",
                routing.origin,
                "spec",
                what,
                "add `hosts`, or a route with a `delegate` that names this VirtualService",
            )


def _of_hosts(routing: VirtualService, facts: Facts) -> Iterator[Problem]:
    """Findings about hosts of a VirtualService that no Service or ServiceEntry has. HTTP is routed by its Host
    header on every port; TLS and TCP are routed only by the addresses and ports of services."""
    streams = " and ".join(name for name, routes in (("tls", routing.tls), ("tcp", routing.tcp)) if routes)
    for index, host in enumerate(routing.hosts):
        if facts.services_of(host) or (is_address(host) and not streams):
            continue
        domain = facts.settings.domain
        outside = not host.endswith(f".{domain}")
        what = f"no Service or ServiceEntry has the host {host}: " + (
            f"its {streams} routes are never used"
            if streams
            else "its routes apply only to requests of callers that resolve the name anyway"
        )
        hint = meant_host(host, facts.by_host, domain)
        if not hint:
            hint = "if the host is outside the mesh, add a ServiceEntry for it" if outside else "add the Service"
        yield finding("WFT0101", routing.origin, f"spec.hosts[{index}]", what, hint)


def _of_owners(routing: VirtualService, facts: Facts) -> Iterator[Problem]:
    """Findings about hosts of a VirtualService that belong to Services of other namespaces, if the routes also apply to
    the workloads there."""
    for index, host in enumerate(routing.hosts):
        owners = {service.namespace for service in facts.by_host.get(host, ())}
        if routing.namespace in owners:
            continue
        for owner in sorted(each for each in owners if is_exported(routing, each, facts.settings)):
            what = f"{host} belongs to namespace {owner}: these routes also apply to the calls of the workloads there"
            hint = 'if the routes are only for callers in this namespace, set `exportTo: ["."]`'
            yield finding("WFT0127", routing.origin, f"spec.hosts[{index}]", what, hint)


def _of_gateway_owners(facts: Facts) -> Iterator[Problem]:
    """Findings about hosts for which VirtualServices of several namespaces have routes at one Gateway."""
    owners: dict[tuple[str, str], VirtualService] = {}
    for routing in sorted(facts.virtual_services, key=strength):
        for gateway in sorted({*routing.gateways} - {MESH}):
            for index, host in enumerate(routing.hosts):
                first = owners.setdefault((gateway, host), routing)
                if host != "*" and first.namespace != routing.namespace:
                    what = (
                        f"VirtualService {first.namespace}/{first.name} has routes for {host} at the Gateway {gateway} "
                        "too: the routes of both namespaces are merged"
                    )
                    hint = f"let namespace {first.namespace} delegate a part of the routes to this namespace"
                    yield finding("WFT0127", routing.origin, f"spec.hosts[{index}]", what, hint)


def _of_gateways(routing: VirtualService, facts: Facts) -> Iterator[Problem]:
    gateways = {*facts.gateways, MESH}
    for index, name in enumerate(routing.gateways):
        if name not in gateways:
            what = f"the gateway {name} does not exist"
            hint = did_you_mean(name, gateways) or "`mesh` stands for all sidecars"
            yield finding("WFT0102", routing.origin, f"spec.gateways[{index}]", what, hint)
    for _, field, line, match in matches(routing):
        for index, name in enumerate(match.gateways):
            if name not in gateways and name not in routing.gateways:  # others are reported by the loop above
                what = f"the gateway {name} does not exist: this entry matches no request"
                hint = did_you_mean(name, gateways) or "`mesh` stands for all sidecars"
                yield finding("WFT0102", routing.origin, f"{field}.gateways[{index}]", what, hint, line=line)


def _of_kinds(routing: VirtualService, facts: Facts) -> Iterator[Problem]:
    """Findings about http, tls or tcp routes for hosts that have no port with this protocol, and about matches for a
    port with another protocol. A port without a declared protocol may carry any. If a Sidecar declares another
    protocol for its workloads' calls to the port, that protocol counts as well."""
    services = [service for host in routing.hosts for service in facts.services_of(host)]
    ports: dict[int, set[Protocol]] = {}
    for port in (each for service in services for each in service.ports if each.protocol is not Protocol.UDP):
        ports.setdefault(port.number, set(facts.spoken.get(port.number, ()))).add(port.protocol)
    protocols = {protocol for carried in ports.values() for protocol in carried}
    unused = set()
    hint = "check that the name of the Service's port begins with its protocol, or that its `appProtocol` is right"
    for kind, routes in (("http", routing.http), ("tls", routing.tls), ("tcp", routing.tcp)):
        if routes and protocols and not any(_carries(protocol, kind) for protocol in protocols):
            unused.add(kind)
            carried = ", ".join(sorted(protocol.value for protocol in protocols))
            what = f"no port of {routing.hosts[0]} carries {kind}, only {carried}: these routes are never used"
            yield finding("WFT0120", routing.origin, f"spec.{kind}", what, hint)
    for kind, field, line, match in matches(routing):
        if kind in unused or set(match.gateways or routing.gateways) != {MESH}:
            continue  # reported by the check of hosts, or the port may be a gateway's
        meant = ports.get(match.port, set())
        if meant and not any(_carries(protocol, kind) for protocol in meant):
            carried = ", ".join(sorted(protocol.value for protocol in meant))
            what = (
                f"port {match.port} of {routing.hosts[0]} carries {carried}, and this match is in the {kind} routes: "
                "the match never applies"
            )
            yield finding("WFT0120", routing.origin, f"{field}.port", what, hint, line=line)


def _carries(protocol: Protocol, kind: str) -> bool:
    match kind:
        case _ if protocol is Protocol.UNDECLARED:
            return True
        case "http":
            return protocol.is_http
        case "tls":
            return protocol in (Protocol.TLS, Protocol.HTTPS)
        case _:
            return not protocol.is_http
