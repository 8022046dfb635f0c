"""What a gateway serves, as facts: the servers of the Gateways that select it, with what they show and whose routes
they have. Rule: of a certificate its name, its hosts and its end are told, and never a key."""

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
from weft.model.gateway import CredentialRef, ServerTls, ServerTlsMode
from weft.model.gateway_api import StandardGateway
from weft.model.group import group_of
from weft.model.instance import Instance
from weft.model.names import where_of
from weft.model.virtual_service import VirtualService


class Shown(msgspec.Struct, frozen=True):
    """What a server shows: a Secret, or a file of the gateway's."""

    name: str
    hosts: tuple[str, ...] = ()
    until: str = ""  # the day; "" where nobody knows
    there: bool = True


class ServedFacts(msgspec.Struct, frozen=True):
    gateway: Where
    port: int
    listens: int
    protocol: str
    hosts: tuple[str, ...]
    tls: str = ""  # the mode
    redirects: bool = False
    shows: tuple[Shown, ...] = ()
    routings: tuple[Where, ...] = ()  # the VirtualServices that it has, the oldest first
    listener: str = ""  # of a Gateway of the Gateway API
    closed: str = ""  # why nobody is answered, if nobody is
    bind: str = ""  # the one address at which it is served
    spoken: tuple[str, ...] = ()  # of TLS: what is said of versions and ciphers
    asks: str = ""  # whom a caller's certificate must be from; "": callers need none
    callers: tuple[str, ...] = ()  # and who that must be, where that is said


class LeftOutFacts(msgspec.Struct, frozen=True):
    """A server that is for a gateway, and that it does not have."""

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
    """NAMESPACE/NAME; of the Gateway API each listener is one to us, and is called by both names."""
    name, _, listener = key.partition("~")
    return f"{name} (listener {listener})" if listener else name


def left_out_lines(each: LeftOutFacts) -> Iterator[str]:
    yield f"{each.gateway.object}{_place(each.gateway)}: port {each.port}/{each.protocol.upper()}, left out"
    yield f"   Hosts: {', '.join(each.hosts)}"
    yield f"   Not served: {each.why}"


def served_lines(servers: tuple[ServedFacts, ...]) -> Iterator[str]:
    """For a person."""
    for each in servers:
        place = f"{_place(each.gateway)}{f', listener {each.listener}' if each.listener else ''}"
        where = f", which listens on {each.listens}" if each.listens != each.port else ""
        alone = f", at {each.bind} alone" if each.bind else ""
        yield f"{each.gateway.object}{place}: port {each.port}/{each.protocol.upper()}{where}{alone}"
        yield f"   Hosts: {', '.join(each.hosts)}"
        if each.tls:
            yield f"   TLS: {', '.join((each.tls, *each.spoken))}"
        for shown in each.shows:
            told = [f"for {', '.join(shown.hosts[:5])}"] if shown.hosts else []
            told += [f"until {shown.until}"] if shown.until else []
            told = told if shown.there else ["which is not there: these hosts are closed"]
            yield f"      Shows {shown.name}{''.join(f', {word}' for word in told)}"
        if each.asks:
            only = f", if it is for {' or '.join(each.callers)}" if each.callers else ""
            must = "must" if each.tls == ServerTlsMode.MUTUAL else "may"
            yield f"      Callers {must} show a certificate by {each.asks}{only}"
        if each.redirects:
            yield "   Sends its callers to HTTPS"
        yield f"   {_routed(each)}"
        if each.closed and each.routings and all(shown.there for shown in each.shows):
            yield f"   Closed: {each.closed}"


def _routed(each: ServedFacts) -> str:
    listed = [where.object for where in each.routings]
    if not listed and each.closed:
        return "VirtualServices: none, so that connections are closed"
    if not listed:
        return "VirtualServices: none, so that every request is answered with 404"
    if all(name.startswith("VirtualService ") for name in listed):
        return f"VirtualServices: {', '.join(name.removeprefix('VirtualService ') for name in listed)}"
    return f"Routes: {', '.join(listed)}"


def _named(key: str) -> str:
    return f"Gateway {key.partition('~')[0]}"


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
        listener=bound.gateway.partition("~")[2],
        closed=unanswered(mesh, bound, group_of(pod)),
        bind=server.bind,
        spoken=tuple(_spoken_tls(tls)) if tls is not None and server.encrypted else (),
        asks=_asked(mesh, bound, namespace) if tls is not None and tls.asks else "",
        callers=_callers(tls) if tls is not None and tls.asks else (),
    )


def _spoken_tls(tls: ServerTls) -> Iterator[str]:
    if tls.minimum_version not in ("", "TLS_AUTO"):
        yield f"{tls.minimum_version} at least"
    if tls.maximum_version not in ("", "TLS_AUTO"):
        yield f"{tls.maximum_version} at most"
    if tls.cipher_suites:
        yield f"with {' or '.join(tls.cipher_suites)}"


def _asked(mesh: Mesh, bound: BoundServer, namespace: str) -> str:
    """Whom a server that asks for certificates believes, in the order in which that is looked for."""
    tls = bound.server.tls
    if tls is None:
        return ""
    if tls.authorities:
        return tls.authorities + (f", without those in {tls.revoked}" if tls.revoked else "")
    if tls.roots:
        return " or ".join(f"ConfigMap {place}/{name}" for place, name in _bundles(mesh, bound))
    for reference in vouching(tls):
        place = reference.namespace or namespace
        found = mesh.credential(CredentialRef(reference.name, place))
        if found is not None and found.roots:
            return f"Secret {place}/{reference.name}"
    return "nobody that is known: these hosts are closed"


def _bundles(mesh: Mesh, bound: BoundServer) -> Iterator[tuple[str, str]]:
    listener = bound.gateway.partition("~")[2]
    for value in mesh.get(bound.origin.key) if bound.origin is not None else ():
        if isinstance(value, StandardGateway):
            for each in value.listeners:
                check = value.check_of(each) if each.name == listener else None
                yield from ((held.namespace, held.name) for held in (check.authorities if check is not None else ()))


def _callers(tls: ServerTls) -> tuple[str, ...]:
    digests = len(tls.spki) + len(tls.hashes)
    return (*tls.subject_alt_names, *((f"one of {digests} digests",) if digests else ()))


def _shown(mesh: Mesh, bound: BoundServer, namespace: str) -> Iterator[Shown]:
    tls = bound.server.tls
    for reference in tls.credentials if tls is not None else ():
        place = reference.namespace or namespace
        held = mesh.credential(CredentialRef(reference.name, place))
        name = f"Secret {place}/{reference.name}"
        if held is None or not held.chain:
            yield Shown(name, there=False)
        else:
            yield Shown(name, held.hosts, time.strftime("%Y-%m-%d", time.gmtime(held.expires)))
    for files in tls.files if tls is not None else ():
        yield Shown(files.certificate)


def _routings(mesh: Mesh, bound: BoundServer, namespace: str) -> list[VirtualService]:
    """As they are written: an edge has only what it takes of them. Those that say nothing of what the server carries
    are told where no others are, for then it is closed."""
    found: dict[str, VirtualService] = {}
    for each in mesh.bound_to(bound.gateway, namespace):
        if any(bound.admits(each, host) or _within(bound, host) for host in each.hosts):
            found[f"{each.namespace}/{each.name}"] = each
    return [each for each in found.values() if _spoken(bound, each)] or list(found.values())


def _spoken(bound: BoundServer, routing: VirtualService) -> bool:
    """Whether it says anything of what the server carries."""
    server = bound.server
    if server.is_http:
        return bool(routing.http)
    ended = not server.encrypted or (server.tls is not None and server.tls.terminates)
    return bool(routing.tcp if ended else routing.tls)


def _within(bound: BoundServer, host: str) -> bool:
    return host.startswith("*") and any(each.host.endswith(host[1:]) for each in bound.hosts)
