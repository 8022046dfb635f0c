"""Collect facts about a gateway pod: the servers of the Gateways that select it, their certificates, and the routes
bound to them. Rule: a certificate is described by its name, hosts and expiry, never by its private key."""

from __future__ import annotations

import time
from collections.abc import Iterator

import msgspec

from weft.base.problem import Where
from weft.inspect.closed_servers import left_out, unanswered
from weft.inspect.describe.routes import named
from weft.mesh.gateways import vouching
from weft.mesh.mesh import Mesh
from weft.model.edge import BoundServer
from weft.model.gateway import ServerTls, ServerTlsMode
from weft.model.gateway_api import StandardGateway, listener_of, listener_set_of, owner_of
from weft.model.group import group_of
from weft.model.instance import Instance
from weft.model.names import CredentialRef, where_of
from weft.model.virtual_service import VirtualService


class Shown(msgspec.Struct, frozen=True):
    """The certificate that a server presents: a Secret, or a file in the gateway's file system (`name`). `hosts`: the
    names that the certificate is for. `until`: the day of expiry; "" if unknown. `there`: whether there is a Secret
    with this name that contains a certificate; always True for a file."""

    name: str
    hosts: tuple[str, ...] = ()
    until: str = ""  # the day of expiry; "" if unknown
    there: bool = True


class ServedFacts(msgspec.Struct, frozen=True):
    gateway: Where
    port: int
    listens: int
    protocol: str
    hosts: tuple[str, ...]
    tls: str = ""  # the TLS mode
    redirects: bool = False
    shows: tuple[Shown, ...] = ()
    routings: tuple[Where, ...] = ()  # the VirtualServices bound to the server, the oldest first
    listener: str = ""  # name of the listener, for a Gateway of the Gateway API
    closed: str = ""  # why its connections are closed; "" if they are not
    bind: str = ""  # the only address on which the server listens; "": all
    spoken: tuple[str, ...] = ()  # TLS versions and cipher suites, in words
    asks: str = ""  # where the CA certificates for client certificates come from; "": none is requested
    callers: tuple[str, ...] = ()  # subject alternative names or digests of allowed client certificates; (): all
    unverified: bool = False  # client certificates are not verified


class LeftOutFacts(msgspec.Struct, frozen=True):
    """A server that the pod does not serve, although the server's Gateway selects the pod. `why`: the reason. The other
    fields are those of the server."""

    gateway: Where
    port: int
    protocol: str
    hosts: tuple[str, ...]
    why: str


def served(mesh: Mesh, pod: Instance) -> tuple[ServedFacts, ...]:
    if not pod.gateway:
        return ()
    scope = mesh.scope(group_of(pod))
    return tuple(_served(mesh, server, pod) for server in scope.servers or ())


def not_served(mesh: Mesh, pod: Instance) -> tuple[LeftOutFacts, ...]:
    return tuple(
        LeftOutFacts(
            where_of(each.gateway.origin, _named(each.gateway.key)),
            each.server.port.number,
            each.server.port.protocol,
            each.server.hosts,
            each.why,
        )
        for each in (left_out(mesh, group_of(pod)) if pod.gateway else ())
    )


def gateway_word(key: str) -> str:
    """The name of a gateway for display, from its key: NAMESPACE/NAME, and for a Gateway of the Gateway API also the
    listener, because the model has a separate gateway for each of its listeners."""
    listener = listener_of(key)
    within = f" of ListenerSet {listener_set}" if (listener_set := listener_set_of(key)) else ""
    return f"{key.partition('~')[0]} (listener {listener}{within})" if listener else key


def left_out_lines(each: LeftOutFacts) -> Iterator[str]:
    yield f"{each.gateway.object}{_place(each.gateway)}: port {each.port}/{each.protocol.upper()}, left out"
    yield f"   Hosts: {', '.join(each.hosts)}"
    yield f"   Not served: {each.why}"


def served_lines(servers: tuple[ServedFacts, ...]) -> Iterator[str]:
    """Describe the servers of a gateway as lines of text."""
    for each in servers:
        place = f"{_place(each.gateway)}{f', listener {each.listener}' if each.listener else ''}"
        where = f", which listens on {each.listens}" if each.listens != each.port else ""
        alone = f", only at {each.bind}" if each.bind else ""
        yield f"{each.gateway.object}{place}: port {each.port}/{each.protocol.upper()}{where}{alone}"
        yield f"   Hosts: {', '.join(each.hosts)}"
        if each.tls:
            yield f"   TLS: {', '.join((each.tls, *each.spoken))}"
        for shown in each.shows:
            details = [f"for {', '.join(shown.hosts[:5])}"] if shown.hosts else []
            details += [f"until {shown.until}"] if shown.until else []
            details = (
                details
                if shown.there
                else ["which does not exist or has no certificate: connections for these hosts are closed"]
            )
            yield f"      Presents {shown.name}{''.join(f', {word}' for word in details)}"
        if each.asks:
            only = f", accepted only for {' or '.join(each.callers)}" if each.callers else ""
            must = "must" if each.tls == ServerTlsMode.MUTUAL else "may"
            whose = f"a certificate from {each.asks}{only}"
            yield f"      Callers {must} present {'a certificate, which is not verified' if each.unverified else whose}"
        if each.redirects:
            yield "   Redirects plain HTTP to HTTPS"
        yield f"   {_routed(each)}"
        if each.closed and each.routings and all(shown.there for shown in each.shows):
            yield f"   Closed: {each.closed}"


def _routed(each: ServedFacts) -> str:
    listed = [where.object for where in each.routings]
    if not listed and each.closed:
        return "VirtualServices: none, so connections are closed"
    if not listed:
        return "VirtualServices: none, so every request gets a 404"
    if all(name.startswith("VirtualService ") for name in listed):
        return f"VirtualServices: {', '.join(name.removeprefix('VirtualService ') for name in listed)}"
    return f"Routes: {', '.join(listed)}"


def _named(key: str) -> str:
    within = f"ListenerSet {listener_set} of " if (listener_set := listener_set_of(key)) else ""
    return f"{within}Gateway {key.partition('~')[0]}"


def _place(where: Where) -> str:
    return f" ({where.file}:{where.line})" if where.file else ""


def _served(mesh: Mesh, bound: BoundServer, pod: Instance) -> ServedFacts:
    server, tls, namespace = bound.server, bound.server.tls, pod.namespace
    return ServedFacts(
        gateway=where_of(bound.origin, _named(bound.gateway)),
        port=server.port.number,
        listens=bound.listens,
        protocol=server.port.protocol,
        hosts=tuple(each.host if each.namespace == "*" else f"{each.namespace}/{each.host}" for each in bound.hosts),
        tls=str(tls.mode) if tls is not None and server.encrypted else "",
        redirects=server.redirects,
        shows=tuple(_shown(mesh, bound, namespace)),
        routings=tuple(named(each) for each in _routings(mesh, bound, namespace)),
        listener=listener_of(bound.gateway),
        closed=unanswered(mesh, bound, group_of(pod)),
        bind=server.bind,
        spoken=tuple(_spoken_tls(tls)) if tls is not None and server.encrypted else (),
        asks=_asked(mesh, bound, namespace) if tls is not None and tls.asks else "",
        callers=_callers(tls) if tls is not None and tls.asks else (),
        unverified=tls is not None and tls.unverified,
    )


def _spoken_tls(tls: ServerTls) -> Iterator[str]:
    if tls.minimum_version not in ("", "TLS_AUTO"):
        yield f"{tls.minimum_version} at least"
    if tls.maximum_version not in ("", "TLS_AUTO"):
        yield f"{tls.maximum_version} at most"
    if tls.cipher_suites:
        yield f"with {' or '.join(tls.cipher_suites)}"


def _asked(mesh: Mesh, bound: BoundServer, namespace: str) -> str:
    """The source of the CA certificates with which a server (`bound`) verifies client certificates, as text: a file,
    ConfigMaps or a Secret, in this order of precedence. If none of them has CA certificates, the text begins with "an
    unknown CA". "" if the server has no TLS."""
    tls = bound.server.tls
    if tls is None:
        return ""
    if tls.authorities:
        return tls.authorities + (f", except those revoked in {tls.revoked}" if tls.revoked else "")
    if tls.roots:
        return " or ".join(f"ConfigMap {place}/{name}" for place, name in _bundles(mesh, bound))
    for reference in vouching(tls):
        place = reference.namespace or namespace
        credential = mesh.credential(CredentialRef(reference.name, place))
        if credential is not None and credential.roots:
            return f"Secret {place}/{reference.name}"
    return "an unknown CA: connections for these hosts are closed"


def _bundles(mesh: Mesh, bound: BoundServer) -> Iterator[tuple[str, str]]:
    for value in mesh.get(owner_of(bound.gateway)):
        if isinstance(value, StandardGateway):
            check = value.check_at(bound.server.port.number)
            yield from ((each.namespace, each.name) for each in (check.authorities if check is not None else ()))


def _callers(tls: ServerTls) -> tuple[str, ...]:
    digests = len(tls.spki) + len(tls.hashes)
    return (*tls.subject_alt_names, *((f"one of {digests} digests",) if digests else ()))


def _shown(mesh: Mesh, bound: BoundServer, namespace: str) -> Iterator[Shown]:
    tls = bound.server.tls
    for reference in tls.credentials if tls is not None else ():
        place = reference.namespace or namespace
        credential = mesh.credential(CredentialRef(reference.name, place))
        name = f"Secret {place}/{reference.name}"
        if credential is None or not credential.chain:
            yield Shown(name, there=False)
        else:
            yield Shown(name, credential.hosts, time.strftime("%Y-%m-%d", time.gmtime(credential.expires)))
    for files in tls.files if tls is not None else ():
        yield Shown(files.certificate)


def _routings(mesh: Mesh, bound: BoundServer, namespace: str) -> list[VirtualService]:
    """The VirtualServices bound to the server, as the user wrote them (the copies in the gateway's view contain only
    the parts that the gateway uses). VirtualServices without routes for the server's protocol are left out. But
    if no VirtualService has routes for that protocol, all are returned."""
    bound_services: dict[str, VirtualService] = {}
    for each in mesh.bound_to(bound.gateway, namespace):
        if any(bound.admits(each, host) or _within(bound, host) for host in each.hosts):
            bound_services[f"{each.namespace}/{each.name}"] = each
    listed = list(bound_services.values())
    return [each for each in listed if _spoken(bound, each)] or listed


def _spoken(bound: BoundServer, routing: VirtualService) -> bool:
    """Whether the VirtualService has routes for the protocol of the server `bound`."""
    server = bound.server
    if server.is_http:
        return bool(routing.http)
    ended = not server.encrypted or (server.tls is not None and server.tls.terminates)
    return bool(routing.tcp if ended else routing.tls)


def _within(bound: BoundServer, host: str) -> bool:
    return host.startswith("*") and any(each.host.endswith(host[1:]) for each in bound.hosts)
