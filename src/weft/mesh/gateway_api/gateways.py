"""Converts a Gateway of the Gateway API and its attached routes into Gateways and VirtualServices of the mesh: each
listener becomes a separate Gateway, and each of its hostnames one VirtualService with every rule for the
hostname. Pure functions; `attached.py` passes the objects.

Rule: only the listener with the most specific hostname handles a request, and its rules for the most specific
hostname come first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec

from weft.mesh.claims import patterns
from weft.mesh.gateway_api.route_rules import Precedence, ResolvedRoute
from weft.model.credential import Credential
from weft.model.edge import narrower
from weft.model.gateway import Gateway, GatewayServer, ServerTls, ServerTlsMode
from weft.model.gateway_api import (
    GATEWAY_NAME,
    GROUP,
    AuthorityBundle,
    CertificateRef,
    From,
    GrantSource,
    GrantTarget,
    Listener,
    ParentRef,
    ReferenceGrant,
    RouteKind,
    StandardGateway,
    StandardRoute,
)
from weft.model.names import CredentialRef, Labels, ObjectKey, host_covers, selects
from weft.model.outcome import (
    ACCEPTED,
    INSECURE_VALIDATION,
    RESOLVED,
    GatewayOutcome,
    ListenerOutcome,
    RouteOutcome,
    StatusCondition,
    not_accepted,
    unresolved,
)
from weft.model.proxy import OWN_PORTS
from weft.model.service import Protocol, ServicePort
from weft.model.virtual_service import DirectResponse, HttpRoute, L4Match, L4Route, VirtualService

ANY = "*"
PROTOCOLS = {"HTTP": Protocol.HTTP, "HTTPS": Protocol.HTTPS, "TLS": Protocol.TLS, "TCP": Protocol.TCP}
_NOBODY = HttpRoute(direct_response=DirectResponse(status=404))


class Surroundings(msgspec.Struct, frozen=True):
    """The objects that a Gateway depends on besides its routes. `grants`: the ReferenceGrants of all namespaces.
    `labels`: returns the labels of a namespace. `credential`: returns the content of a Secret; None if it does not
    exist. `bundles`: the ConfigMaps with CA certificates, by namespace and name."""

    grants: tuple[ReferenceGrant, ...]
    labels: Callable[[str], Labels]
    credential: Callable[[CredentialRef], Credential | None]
    bundles: Mapping[tuple[str, str], AuthorityBundle]


class AttachedGateway(msgspec.Struct, frozen=True):
    gateways: tuple[Gateway, ...]
    routings: tuple[VirtualService, ...]
    routes: tuple[RouteOutcome, ...]
    outcome: GatewayOutcome


class _Place(msgspec.Struct):
    """A listener of a Gateway, with the routes that have been attached to it so far (`attached`: each route with its
    hostnames on this listener). `kinds`: the kinds of routes that the listener allows. `told`: its conditions Accepted,
    Conflicted and ResolvedRefs. `accepted`: whether the listener is valid and conflicts with no other, so that it is
    served. `permitted`: whether the listener may use the Secrets and ConfigMaps that it references; if not, it closes
    connections. `roots`: the CA certificates (PEM) that client certificates must chain to; "" if no client certificate
    is needed."""

    listener: Listener
    kinds: tuple[RouteKind, ...]
    told: tuple[StatusCondition, ...]
    accepted: bool
    permitted: bool
    roots: str
    attached: dict[ObjectKey, tuple[StandardRoute, tuple[str, ...]]]

    @property
    def host(self) -> str:
        return self.listener.hostname or ANY


def served(
    gateway: StandardGateway,
    routes: Iterable[StandardRoute],
    resolved_routes: Mapping[ObjectKey, ResolvedRoute],
    around: Surroundings,
) -> AttachedGateway:
    places = list(_places(gateway, around))
    outcomes = []
    for route in routes:  # the oldest first: it has precedence in a conflict
        for reference in route.parents:
            if reference.place == ("Gateway", gateway.namespace, gateway.name):
                accepted = _attach(route, reference, gateway, places, around)
                outcomes.append(
                    RouteOutcome(
                        route.key,
                        reference,
                        (accepted, resolved_routes[route.key].told),
                        route.origin,
                        flaws=resolved_routes[route.key].flaws,
                    )
                )
    serving = [place for place in places if place.accepted]
    resolved, presented = _client_certificate(gateway, around)
    return AttachedGateway(
        tuple(_gateway(gateway, place, presented) for place in serving),
        tuple(routing for place in serving for routing in _routings(gateway, place, serving, resolved_routes)),
        tuple(outcomes),
        _outcome(gateway, places, resolved),
    )


# Listeners


def _places(gateway: StandardGateway, around: Surroundings) -> Iterator[_Place]:
    spoken: dict[int, str] = {}
    taken: set[tuple[int, str, str]] = set()
    for listener in gateway.listeners:
        anything = not listener.kinds and not listener.other_kinds  # only unsupported kinds listed: no route attaches
        kinds = tuple(kind for kind in fitting(listener) if anything or kind in listener.kinds)
        accepted, conflict = ACCEPTED, StatusCondition("Conflicted", holds=False, reason="NoConflicts")
        below = "TLS" if listener.protocol in ("HTTPS", "TLS") else listener.protocol
        name = (listener.port, below, listener.hostname)
        if listener.protocol not in PROTOCOLS:
            accepted = not_accepted("UnsupportedProtocol", f"weft does not support the protocol {listener.protocol}")
        elif listener.port in OWN_PORTS:
            accepted = not_accepted("PortUnavailable", f"port {listener.port} is reserved for the proxy")
        elif spoken.setdefault(listener.port, below) != below:
            what = f"another listener of port {listener.port} has the protocol {spoken[listener.port]}"
            conflict = StatusCondition("Conflicted", holds=True, reason="ProtocolConflict", message=what)
        elif name in taken:
            hostname = f"the hostname {listener.hostname}" if listener.hostname else "no hostname either"
            what = f"another listener of port {listener.port} has {hostname}"
            conflict = StatusCondition("Conflicted", holds=True, reason="HostnameConflict", message=what)
        taken.add(name)
        if conflict.holds:
            accepted = not_accepted(conflict.reason, conflict.message)
        resolved, permitted = _references(gateway, listener, around)
        serves = accepted.holds
        lack, roots = _authorities(gateway, listener, around)
        if lack is not None and serves:
            resolved, accepted, permitted = lack, not_accepted("NoValidCACertificate", lack.message), False
        yield _Place(listener, kinds, (accepted, conflict, resolved), serves, permitted, roots, {})


def fitting(listener: Listener) -> tuple[RouteKind, ...]:
    match listener.protocol:
        case "HTTP" | "HTTPS":
            return (RouteKind.HTTP, RouteKind.GRPC)
        case "TLS":
            return (RouteKind.TLS,) if listener.passthrough else (RouteKind.TLS, RouteKind.TCP)
        case "TCP":
            return (RouteKind.TCP,)
    return ()


def _references(gateway: StandardGateway, listener: Listener, around: Surroundings) -> tuple[StatusCondition, bool]:
    """Return (condition, permitted): the ResolvedRefs condition of a listener, and whether the listener may use every
    object that it references. `around`: the objects that the Gateway depends on besides its routes."""
    wrong = [*listener.other_kinds, *(kind for kind in listener.kinds if kind not in fitting(listener))]
    condition = RESOLVED
    if wrong:
        what = f"a listener with the protocol {listener.protocol} does not support {', '.join(wrong)}"
        condition = unresolved("InvalidRouteKinds", what)
    for each in listener.certificates:
        lack, permitted = _lack(gateway, each, "InvalidCertificateRef", around)
        if not permitted:
            return lack, False
        condition = condition if lack.holds else lack
    return condition, True


def _lack(
    gateway: StandardGateway, reference: CertificateRef, reason: str, around: Surroundings
) -> tuple[StatusCondition, bool]:
    """Return (condition, permitted): the ResolvedRefs condition for a reference to a certificate, and whether the
    Gateway may use the object. `reason`: that of the condition if the object has no certificate. `around`: the objects
    that the Gateway depends on besides its routes."""
    named = f"{reference.kind} {reference.namespace}/{reference.name}"
    if (reference.group, reference.kind) != ("", "Secret"):
        kind = f"{reference.kind}.{reference.group}" if reference.group else reference.kind
        return unresolved(reason, f"a certificate must be in a Secret, not in a {kind}"), False
    if not _permitted(gateway, reference, around.grants):
        what = f"no ReferenceGrant in {reference.namespace} allows this Gateway to use {named}"
        return unresolved("RefNotPermitted", what), False
    credential = around.credential(CredentialRef(reference.name, reference.namespace))
    if credential is None or not credential.chain:
        what = "does not exist" if credential is None else "contains no certificate"
        return unresolved(reason, f"{named} {what}"), True
    return RESOLVED, True


def _client_certificate(gateway: StandardGateway, around: Surroundings) -> tuple[StatusCondition, CredentialRef | None]:
    """Return the ResolvedRefs condition of the client certificate that a Gateway presents to backends, and the Secret
    with the certificate: None if the Gateway has none, a reference without a name if it may not use it. `around`: the
    objects that the Gateway depends on besides its routes."""
    reference = gateway.client_certificate
    if reference is None:
        return RESOLVED, None
    condition, permitted = _lack(gateway, reference, "InvalidClientCertificateRef", around)
    return condition, CredentialRef(reference.name, reference.namespace) if permitted else CredentialRef("")


def _authorities(
    gateway: StandardGateway, listener: Listener, around: Surroundings
) -> tuple[StatusCondition | None, str]:
    """Return None and the CA certificates, as PEM, with which a listener verifies client certificates. If these cannot
    be used, return the condition with the reason, and "" instead of certificates. `around`: the objects that the
    Gateway depends on besides its routes."""
    check = gateway.check_of(listener)
    bundles = []
    for each in check.authorities if check is not None else ():
        named = f"{each.kind} {each.namespace}/{each.name}"
        if (each.group, each.kind) != ("", "ConfigMap"):
            what = (
                f"CA certificates are not read from a {each.kind}, only from a ConfigMap with certificates in `ca.crt`"
            )
            return unresolved("InvalidCACertificateKind", what), ""
        if not _permitted(gateway, each, around.grants):
            what = f"no ReferenceGrant in {each.namespace} allows this Gateway to use {named}"
            return unresolved("RefNotPermitted", what), ""
        bundle = around.bundles.get((each.namespace, each.name))
        if bundle is None:
            return unresolved("InvalidCACertificateRef", f"there is no {named} with certificates in `ca.crt`"), ""
        bundles.append(bundle.roots)
    return None, "\n".join(bundles)


def _permitted(gateway: StandardGateway, reference: CertificateRef, grants: Iterable[ReferenceGrant]) -> bool:
    source = GrantSource(GROUP, "Gateway", gateway.namespace)
    target = GrantTarget(reference.group, reference.kind, reference.name)
    return reference.namespace == gateway.namespace or any(
        grant.namespace == reference.namespace and grant.allows(source, target) for grant in grants
    )


# Attachment


def _attach(
    route: StandardRoute, reference: ParentRef, gateway: StandardGateway, places: list[_Place], around: Surroundings
) -> StatusCondition:
    """Attach a route to each listener (in `places`) that the parentRef `reference` names and that allows the route.
    Returns the Accepted condition: it holds if at least one listener allows the route. `around`: the objects that the
    Gateway depends on besides its routes."""
    meant = [
        place
        for place in places
        if reference.section in ("", place.listener.name) and reference.port in (0, place.listener.port)
    ]
    if not meant:
        names = ", ".join(f"{place.listener.name} ({place.listener.port})" for place in places)
        return not_accepted("NoMatchingParent", f"{reference} matches no listener; the Gateway's listeners are {names}")
    allowed = [place for place in meant if _allows(place, route, gateway, around.labels)]
    if not allowed:
        what = (
            f"no listener of Gateway {gateway.namespace}/{gateway.name} allows a {route.kind} from the namespace"
            f" {route.namespace}"
        )
        return not_accepted("NotAllowedByListeners", what)
    with_hosts = [(place, hosts) for place in allowed if (hosts := _hosts(place, route))]
    if not with_hosts:
        return not_accepted(
            "NoMatchingListenerHostname",
            f"the route's hostnames ({', '.join(route.hostnames)}) match none of the listeners' hostnames"
            f" ({', '.join(place.host for place in allowed)})",
        )
    other = ""
    attached = False
    for place, hosts in with_hosts:
        beside = _excluding(place, route, hosts)
        if beside is not None:
            other = f"{beside.kind} {beside.namespace}/{beside.name}"
            continue
        attached = True
        place.attached.setdefault(route.key, (route, hosts))
    return ACCEPTED if attached else not_accepted("Conflicted", f"{other} is older and has the same hostnames")


def _allows(place: _Place, route: StandardRoute, gateway: StandardGateway, labels: Callable[[str], Labels]) -> bool:
    listener = place.listener
    if route.kind not in place.kinds:
        return False
    match listener.namespaces:
        case From.ALL:
            return True
        case From.SAME:
            return route.namespace == gateway.namespace
        case From.SELECTOR:
            own = labels(route.namespace)
            return selects(listener.selector, own) and all(each.holds(own) for each in listener.requirements)
    return False


def _hosts(place: _Place, route: StandardRoute) -> tuple[str, ...]:
    if route.kind is RouteKind.TCP or not route.hostnames:
        return (place.host,)
    hosts = (narrower(place.host, each) for each in route.hostnames)
    return tuple(dict.fromkeys(each for each in hosts if each))


def _excluding(place: _Place, route: StandardRoute, hosts: tuple[str, ...]) -> StandardRoute | None:
    """A route that excludes `route` from the listener `place`: it is attached to the listener, is of the other HTTP
    kind, and has a hostname in common with `hosts`, the hostnames of `route` on this listener. None if there is no such
    route. HTTPRoutes and GRPCRoutes cannot share a hostname of a listener."""
    if not route.kind.is_http or all(key.kind == route.kind for key in place.attached):
        return None
    for other, theirs in place.attached.values():
        if other.kind is not route.kind and any(narrower(one, two) for one in hosts for two in theirs):
            return other
    return None


# Values of the mesh


def _gateway(gateway: StandardGateway, place: _Place, presented: CredentialRef | None) -> Gateway:
    """The Gateway of the mesh for a listener (`place`). If the listener may not use the Secrets that it references, the
    Gateway gets no certificate and closes connections. It is not left out, because then a listener with a wider
    hostname would serve these connections. `presented`: the Secret with the client certificate for backends."""
    tls, listener = None, place.listener
    if listener.protocol in ("HTTPS", "TLS"):
        check = gateway.check_of(listener)
        unverified = bool(place.roots) and check is not None and check.insecure and not listener.client_certificates
        ended = ServerTlsMode(listener.client_certificates or ("MUTUAL" if place.roots else "SIMPLE"))
        ended = ServerTlsMode.OPTIONAL_MUTUAL if unverified else ended
        shown = listener.certificates if place.permitted else ()
        tls = ServerTls(
            ServerTlsMode.PASSTHROUGH if listener.passthrough else ended,
            credentials=tuple(CredentialRef(each.name, each.namespace) for each in shown),
            roots=place.roots,
            unverified=unverified,
        )
    port = ServicePort(listener.port, listener.name, PROTOCOLS[listener.protocol])
    return Gateway(
        name=_name(gateway, listener),
        namespace=gateway.namespace,
        servers=(GatewayServer(port, (listener.hostname or ANY,), listener.name, tls=tls),),
        selector=((GATEWAY_NAME, gateway.name),),
        within=gateway.namespace,
        client_certificate=presented,
        created=gateway.created,
        origin=gateway.origin,
    )


def _name(gateway: StandardGateway, listener: Listener) -> str:
    """The name of the derived Gateway for a listener. It contains `~`, which is invalid in Kubernetes names, so it
    equals the name of no object."""
    return f"{gateway.name}~{listener.name}"


def _routings(
    gateway: StandardGateway, place: _Place, serving: list[_Place], resolved_routes: Mapping[ObjectKey, ResolvedRoute]
) -> Iterator[VirtualService]:
    bound = (f"{gateway.namespace}/{_name(gateway, place.listener)}",)

    def routing(
        first: StandardRoute | None, hosts: tuple[str, ...], **routes: tuple[HttpRoute | L4Route, ...]
    ) -> VirtualService:
        return VirtualService(
            name=first.name if first else gateway.name,
            namespace=first.namespace if first else gateway.namespace,
            hosts=hosts,
            gateways=bound,
            export_to=(ANY,),
            created=first.created if first else gateway.created,
            origin=first.origin if first else gateway.origin,
            attached=True,
            **routes,  # type: ignore[arg-type]
        )

    if place.listener.protocol not in ("HTTP", "HTTPS"):
        for route, hosts in place.attached.values():
            streams = tuple(
                L4Route(
                    (L4Match(sni_hosts=() if route.kind is RouteKind.TCP else hosts),),
                    each.route,
                    each.line,
                    each.failing,
                )
                for each in resolved_routes[route.key].streams
            )
            yield routing(route, hosts, **({"tls": streams} if place.listener.passthrough else {"tcp": streams}))
        return
    nearer = [other.host for other in serving if _is_nearer(other, place)]
    by_host: dict[str, list[StandardRoute]] = {}
    for route, hosts in place.attached.values():
        for host in hosts:
            by_host.setdefault(host, []).append(route)
    names = by_host.keys()
    for name in names:
        if any(host_covers(other, name) for other in nearer):
            continue  # another listener with a more specific hostname handles these requests
        rules: list[tuple[Precedence, HttpRoute]] = []
        members: dict[ObjectKey, StandardRoute] = {}
        for width, host in enumerate(patterns(name)):  # the most specific first
            for route in by_host.get(host, ()):
                if route.key not in members:
                    members[route.key] = route
                    rules += (((width, *order), each) for order, each in resolved_routes[route.key].http)
        first = min(members.values(), key=lambda each: each.age)
        yield routing(first, (name,), http=tuple(each for _, each in sorted(rules, key=lambda pair: pair[0])))
    # Requests for this listener's hostname belong to it even without routes: a listener with a wider hostname must not
    # serve them.
    if place.host not in names and any(_is_nearer(place, other) for other in serving):
        yield routing(None, (place.host,), http=(_NOBODY,))


def _is_nearer(one: _Place, other: _Place) -> bool:
    """Whether the hostname of listener `one` is more specific than that of `other` and covered by it, on the same
    port."""
    same = one.listener.port == other.listener.port and one.listener.protocol == other.listener.protocol
    return same and one.host != other.host and host_covers(other.host, one.host)


def _outcome(gateway: StandardGateway, places: list[_Place], resolved: StatusCondition) -> GatewayOutcome:
    listeners = []
    for place in places:
        accepted, conflict, references = place.told
        good = place.accepted and place.permitted and (references.holds or references.reason == "InvalidRouteKinds")
        programmed = StatusCondition("Programmed", holds=good, reason="Programmed" if good else "Invalid")
        listeners.append(
            ListenerOutcome(
                place.listener.name,
                place.kinds,
                len(place.attached),
                (accepted, programmed, conflict, references),
                place.listener.line,
            )
        )
    bad = [place for place in places if not place.told[0].holds]
    accepted = ACCEPTED
    if bad:
        what = f"some listeners are not valid: {', '.join(place.listener.name for place in bad)}"
        accepted = StatusCondition("Accepted", holds=len(bad) < len(places), reason="ListenersNotValid", message=what)
    programmed = StatusCondition(
        "Programmed", holds=accepted.holds, reason="Programmed" if accepted.holds else "Invalid"
    )
    lacking = [place.listener.name for place in places if not place.told[2].holds]
    if lacking and resolved.holds:
        resolved = unresolved("ListenersNotResolved", f"see the conditions of these listeners: {', '.join(lacking)}")
    conditions = [accepted, programmed, resolved]
    if any(check.insecure for check in gateway.checks):
        what = "AllowInsecureFallback: client certificates are not verified, and clients without one are accepted"
        conditions.append(StatusCondition(INSECURE_VALIDATION, holds=True, reason="ConfigurationChanged", message=what))
    return GatewayOutcome(gateway.key, tuple(conditions), tuple(listeners), gateway.origin)
