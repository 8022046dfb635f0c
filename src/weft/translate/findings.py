"""Finds problems of the objects behind a view: a destination that does not exist, a route that is left out, a port that
cannot be distinguished from others. Every problem is a warning: the rest of the config works."""

from __future__ import annotations

from collections.abc import Iterator

from weft.base.problem import Problem, Severity
from weft.base.suggest import did_you_mean_name
from weft.mesh.mesh import Mesh
from weft.mesh.virtual_services import audience_of
from weft.model.destination_rule import asks_for_tls, effective
from weft.model.group import ProxyKind
from weft.model.names import ObjectKey, Origin, where_of
from weft.model.peer_authentication import TlsMode
from weft.model.proxy import TAKEN_PORTS
from weft.model.scope import Audience
from weft.model.service import Resolution
from weft.model.virtual_service import Destination, VirtualService, destinations
from weft.translate.commands import harmless
from weft.translate.delegates import Dropped, written_out
from weft.translate.view import ServiceView, speaking, takes_whole_port

_BY_NAME = (Resolution.DNS, Resolution.DNS_ROUND_ROBIN)


def problems_of(view: ServiceView, mesh: Mesh) -> tuple[Problem, ...]:
    """Return the problems of the objects behind a view. `mesh` is needed only to distinguish hidden hosts and objects
    from those that do not exist."""
    return (
        *_of_destinations(view, mesh),
        *_of_routes(view, mesh),
        *_of_headers(view),
        *_of_ports(view),
        *_of_grpc_clients(view, mesh),
    )


def _of_destinations(view: ServiceView, mesh: Mesh) -> Iterator[Problem]:
    for routing in (*_taken(view), *view.delegates):
        for line, destination in destinations(routing):
            code, what, hint = _against(destination, view, mesh)
            if code:
                yield _warning(code, routing.origin, what, hint, line=line)


def _of_routes(view: ServiceView, mesh: Mesh) -> Iterator[Problem]:
    taken = speaking(view)
    for dropped in (each for routing in taken for each in written_out(routing, view.delegates)[1]):
        name = f"route {dropped.route.name!r}" if dropped.route.name else "a route"
        what = f"{name} is left out: {_why_not_handed_over(dropped, mesh) or dropped.why}"
        yield _warning("WFT0109", dropped.routing.origin, what, "", line=dropped.route.line)
    for other in view.routes:
        if other not in taken and other.http and not (other.attached and taken[0].attached):
            if _is_public(other, mesh) and not _is_public(taken[0], mesh):
                continue  # an override for one namespace, on purpose: other callers use the public routes
            used = f"{taken[0].namespace}/{taken[0].name}"
            what = f"the http routes for {view.host} are not used: {used} already has http routes for this host"
            yield _warning("WFT0108", other.origin, what, "put the routes of one host into one VirtualService")


def _is_public(routing: VirtualService, mesh: Mesh) -> bool:
    return audience_of(routing, routing.namespace, mesh.settings) is Audience.PUBLIC


def _why_not_handed_over(dropped: Dropped, mesh: Mesh) -> str:
    """Return why the VirtualService to which a dropped route delegates cannot be its delegate, although it exists; ""
    if it does not exist."""
    delegate = dropped.route.delegate
    values = mesh.get(ObjectKey("VirtualService", delegate.namespace, delegate.name)) if delegate else ()
    if delegate is None or not values:
        return ""
    name = f"{delegate.namespace}/{delegate.name}"
    if any(isinstance(value, VirtualService) and value.hosts for value in values):
        return f"{name} has `hosts`, so it is not a delegate"
    return f"the delegate {name} is not exported to namespace {dropped.routing.namespace}"


def _of_headers(view: ServiceView) -> Iterator[Problem]:
    for routing in (*_taken(view), *view.delegates):
        for route in routing.http:
            for headers in (route.headers, *(weighted.headers for weighted in route.route)):
                for changes in (headers.request, headers.response):
                    for name, value in (*changes.set, *changes.add):
                        if harmless(value) != value:
                            what = (
                                f"header {name} has the value {value!r} with a command that Envoy does not know: "
                                "the command is sent as plain text"
                            )
                            yield _warning(
                                "WFT0110", routing.origin, what, "write a percent sign as %%", line=route.line
                            )


def _taken(view: ServiceView) -> tuple[VirtualService, ...]:
    return view.routes if view.caller.kind is ProxyKind.GATEWAY else view.routes[:1]


def _of_ports(view: ServiceView) -> Iterator[Problem]:
    service = view.service
    if service is None or view.caller.kind is ProxyKind.GATEWAY:  # a gateway is called at its own ports
        return
    for port in view.ports:
        if port.number in TAKEN_PORTS and not (service.addresses or service.headless):
            what = f"port {port.number} of {view.host} is a port of the proxy itself, which cannot forward calls to it"
            yield _warning("WFT0305", service.origin, what, "use another service port")
        elif service.resolution in _BY_NAME and takes_whole_port(view, port) and not view.host.startswith("*"):
            what = (
                f"port {port.number} of {view.host} is not HTTP or TLS and the host has no address: "
                f"this host gets every connection to port {port.number}"
            )
            yield _warning("WFT0306", service.origin, what, "list `addresses`")


def _of_grpc_clients(view: ServiceView, mesh: Mesh) -> Iterator[Problem]:
    """Yield a warning for each port that gRPC's own xDS clients cannot call because it requires TLS: without a proxy
    they have no identity and can only use plaintext."""
    service = view.service
    if service is None or view.caller.kind is not ProxyKind.GRPC:
        return
    for port in view.ports:
        modes = {
            mesh.peer_modes(service.namespace, each.labels).at(each.port) for each in mesh.endpoints(service, port)
        }
        what = ""
        if asks_for_tls(effective(view.rule, port.number)):
            what = f"gRPC's own clients do not call port {port.number} of {view.host}: its DestinationRule requires TLS"
        elif TlsMode.STRICT in modes:
            what = f"gRPC's own clients call port {port.number} of {view.host} in plaintext, but it requires mutual TLS"
        if what:
            yield _warning(
                "WFT0314",
                service.origin,
                what,
                "call the service through a sidecar, or set its PeerAuthentication to PERMISSIVE",
            )


def _against(destination: Destination, view: ServiceView, mesh: Mesh) -> tuple[str, str, str]:
    """Return the WFT code of the check that a destination fails, the message, and a hint; three empty strings if the
    destination is valid."""
    host = destination.host
    if host == view.host and view.service is not None:
        ports = tuple(port.number for port in view.service.ports)
        subsets = tuple(subset.name for subset in view.rule.subsets) if view.rule else ()
    else:
        target = view.target(host)
        if target is None or not target.known:
            if host in mesh.hosts():
                return (
                    "WFT0105",
                    f"destination {host} is hidden from namespace {view.caller.namespace}",
                    "see `exportTo` of the destination",
                )
            return (
                "WFT0104",
                f"destination {host} does not exist: requests sent there fail with 503",
                did_you_mean_name(host, mesh.hosts()),
            )
        ports, subsets = target.ports, target.subsets
    if destination.port and destination.port not in ports:
        return (
            "WFT0106",
            f"destination {host} has no port {destination.port}: requests sent there fail with 503",
            f"it has {', '.join(map(str, ports)) or 'none'}",
        )
    if destination.subset and destination.subset not in subsets:
        return (
            "WFT0107",
            f"destination {host} has no subset {destination.subset!r}: requests sent there fail with 503",
            f"its DestinationRule has {', '.join(subsets)}"
            if subsets
            else "no DestinationRule of the host has subsets",
        )
    return ("", "", "")


def _warning(code: str, origin: Origin | None, what: str, hint: str, *, line: int = 0, field: str = "") -> Problem:
    """Return a warning about the object `origin`, with the text `what` and a hint. `code` is a WFT code of `weft
    analyze` and must be in its table. `line` and `field`: the place in the object; by default the whole object."""
    return Problem(where_of(origin, line=line, field=field), what, hint, Severity.WARNING, code)
