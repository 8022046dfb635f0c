"""Findings about VirtualServices at the Gateways that they name: hosts that the Gateway does not serve, or not for
this namespace; routes of a kind (http, tls, tcp) that its servers do not use; and tls and tcp routes to
destinations that do not exist. `translate/findings.py` checks the destinations of http routes."""

from __future__ import annotations

from collections.abc import Iterator

from weft.analyze.facts import Facts
from weft.analyze.finding import finding
from weft.base.problem import Problem
from weft.base.suggest import did_you_mean_name
from weft.mesh.gateways import served_host
from weft.model.edge import ServedHost, narrower
from weft.model.gateway import Gateway, GatewayServer
from weft.model.virtual_service import Destination, VirtualService

_MESH = "mesh"


def of_gateway_routes(facts: Facts) -> Iterator[Problem]:
    for routing in facts.virtual_services:
        named = [name for name in routing.gateways if name != _MESH]
        known = [facts.gateways[name] for name in named if name in facts.gateways]
        if _MESH not in routing.gateways:
            for gateway in known:
                yield from _of_hosts(routing, gateway)
            if len(known) == len(named):
                yield from _of_kinds(routing, known)
        if known:
            yield from _of_streams(routing, facts)


def _of_hosts(routing: VirtualService, gateway: Gateway) -> Iterator[Problem]:
    served = [served_host(gateway, host) for server in _meant(routing, gateway) for host in server.hosts]
    for index, host in enumerate(routing.hosts):
        met = [each for each in served if narrower(each.host, host)]
        if any(each.admits(routing) for each in met):
            continue
        if met:
            owners = " or ".join(dict.fromkeys(each.namespace for each in met))
            what = (
                f"the gateway {gateway.key} accepts routes for {host} only from namespace {owners}: these "
                "routes are never used there"
            )
            hint = (
                f"move the VirtualService to namespace {owners}, or set the server's host to "
                f"`{routing.namespace}/{met[0].host}`"
            )
        else:
            what = f"the gateway {gateway.key} does not serve {host}: these routes are never used there"
            hint = f"it serves {', '.join(sorted({each.host for each in served})[:5])}"
        yield finding("WFT0122", routing.origin, f"spec.hosts[{index}]", what, hint)


def _of_kinds(routing: VirtualService, gateways: list[Gateway]) -> Iterator[Problem]:
    """Findings about http, tls or tcp routes of a VirtualService that no server of its Gateways uses. A server uses one
    kind: http routes if it reads requests, tls routes (by SNI) if it passes TLS through, else tcp routes."""
    meeting = [server for each in gateways for server in _meant(routing, each) if meets(routing, each, server)]
    if not meeting:
        return  # the check of its hosts reports this
    for kind, routes in (("http", routing.http), ("tls", routing.tls), ("tcp", routing.tcp)):
        if routes and not any(_looked_at(server) == kind for server in meeting):
            server = meeting[0]
            mode = f" with tls.mode {server.tls.mode}" if server.encrypted and server.tls is not None else ""
            protocol = f"port {server.port.number} is {server.port.protocol.value.upper()}{mode}"
            what = (
                f"no server of these gateways uses {kind} routes for {', '.join(routing.hosts[:3])}: {protocol}; "
                "these routes "
                "are never used"
            )
            yield finding("WFT0120", routing.origin, f"spec.{kind}", what, f"use `{_looked_at(server)}` routes")


def _meant(routing: VirtualService, gateway: Gateway) -> list[GatewayServer]:
    """The servers of a Gateway that can serve the VirtualService's hosts. TCP servers are left out, because TCP has
    no host names, unless the VirtualService has tcp routes or the Gateway has only TCP servers."""
    servers = list(gateway.servers)
    return servers if routing.tcp else [each for each in servers if each.is_http or each.encrypted] or servers


def meets(routing: VirtualService, gateway: Gateway, server: GatewayServer) -> bool:
    own: list[ServedHost] = [served_host(gateway, host) for host in server.hosts]
    return any(each.admits(routing) and narrower(each.host, host) for each in own for host in routing.hosts)


def _looked_at(server: GatewayServer) -> str:
    """The kind of routes that a server uses: http, tls or tcp."""
    if server.is_http:
        return "http"
    return "tls" if server.encrypted and not (server.tls is not None and server.tls.terminates) else "tcp"


def _of_streams(routing: VirtualService, facts: Facts) -> Iterator[Problem]:
    if _MESH in routing.gateways and any(facts.services_of(host) for host in routing.hosts):
        return  # the check for the callers of these hosts reports this
    for stream in (*routing.tls, *routing.tcp):
        for each in stream.route:
            code, what, hint = _against(each.destination, facts)
            if code:
                line = each.line or stream.line
                yield finding(code, routing.origin, "", f"{what}: connections sent there are closed", hint, line=line)


def _against(destination: Destination, facts: Facts) -> tuple[str, str, str]:
    """The code, message and hint of the finding about a destination; empty strings if there is no finding."""
    host = destination.host
    services = facts.by_host.get(host, ()) or facts.services_of(host)
    if not services:
        return "WFT0104", f"destination {host} does not exist", did_you_mean_name(host, facts.by_host)
    ports = {port.number for service in services for port in service.ports}
    if destination.port and destination.port not in ports:
        return (
            "WFT0106",
            f"destination {host} has no port {destination.port}",
            f"it has {', '.join(map(str, sorted(ports))) or 'none'}",
        )
    subsets = {subset.name for rule in facts.rules if rule.host == host for subset in rule.subsets}
    if destination.subset and destination.subset not in subsets:
        named = ", ".join(sorted(subsets))
        hint = f"a DestinationRule for it defines {named}" if subsets else "no DestinationRule defines subsets"
        return "WFT0107", f"destination {host} has no subset {destination.subset!r}", hint
    return "", "", ""
