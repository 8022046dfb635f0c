"""Converts a Gateway of the Gateway API, its ListenerSets and its attached routes into Gateways and VirtualServices of
the mesh: each listener becomes a separate Gateway, and each of its hostnames one VirtualService with every rule for the
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
    GrantSource,
    GrantTarget,
    Listener,
    ListenerSet,
    Parent,
    ParentRef,
    ReferenceGrant,
    RouteKind,
    StandardGateway,
    StandardRoute,
    listener_name,
)
from weft.model.names import CredentialRef, Labels, ObjectKey, host_covers
from weft.model.outcome import (
    ACCEPTED,
    INSECURE_VALIDATION,
    RESOLVED,
    GatewayOutcome,
    ListenerOutcome,
    ListenerSetOutcome,
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
    listener_sets: tuple[ListenerSetOutcome, ...] = ()


_Owner = StandardGateway | ListenerSet  # the object that declares a listener


class _Place(msgspec.Struct):
    """A listener of a Gateway or of its ListenerSet (`owner`), with the routes that have been attached to it so far
    (`attached`: each route with its hostnames on this listener). `kinds`: the kinds of routes that the listener allows.
    `told`: its conditions Accepted, Conflicted and ResolvedRefs. `accepted`: whether the listener is valid and
    conflicts with no other, so that it is served. `permitted`: whether the listener may use the Secrets and ConfigMaps
    that it references; if not, it closes connections. `roots`: the CA certificates (PEM) that client certificates must
    chain to; "" if no client certificate is needed."""

    owner: _Owner
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

    @property
    def is_valid(self) -> bool:
        """Whether the listener is served and may use what it references."""
        return self.accepted and self.permitted


def served(
    gateway: StandardGateway,
    listener_sets: Iterable[ListenerSet],
    routes: Iterable[StandardRoute],
    resolved_routes: Mapping[ObjectKey, ResolvedRoute],
    around: Surroundings,
) -> AttachedGateway:
    """Convert a Gateway. `listener_sets`: those that name the Gateway. `routes`: those that name the Gateway or one of
    these ListenerSets. `resolved_routes`: the rules of each route. `around`: the objects that the Gateway depends on
    besides these."""
    by_age = sorted(listener_sets, key=lambda each: each.age)
    owners: dict[Parent, _Owner] = {gateway.place: gateway}
    for each in by_age:
        if gateway.listener_sets.allow(each.namespace, gateway.namespace, around.labels(each.namespace)):
            owners[each.place] = each
    places = list(_places(gateway, owners.values(), around))
    excluded = {each.place for each in by_age} - owners.keys()
    outcomes = []
    for route in routes:  # the oldest first: it has precedence in a conflict
        for reference in route.parents:
            owner = owners.get(reference.place)
            if owner is not None or reference.place in excluded:
                accepted = (
                    _attach(route, reference, owner, [each for each in places if each.owner is owner], around)
                    if owner is not None
                    else not_accepted("NoMatchingParent", _not_allowed(reference.place, gateway))
                )
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
    accepted_sets = {place.owner.place for place in places if place.is_valid and place.owner is not gateway}
    return AttachedGateway(
        tuple(_gateway(gateway, place, presented) for place in serving),
        tuple(routing for place in serving for routing in _routings(gateway, place, serving, resolved_routes)),
        tuple(outcomes),
        _outcome(gateway, [each for each in places if each.owner is gateway], resolved, len(accepted_sets)),
        tuple(_set_outcome(each, gateway, [place for place in places if place.owner is each]) for each in by_age),
    )


# Listeners


def _places(gateway: StandardGateway, owners: Iterable[_Owner], around: Surroundings) -> Iterator[_Place]:
    """Yield the listeners of a Gateway and of its ListenerSets (`owners`). In a conflict, the first of two listeners is
    served. `around`: the objects that the Gateway depends on besides these."""
    spoken: dict[int, str] = {}
    taken: set[tuple[int, str, str]] = set()
    for owner, listener in ((each, listener) for each in owners for listener in each.listeners):
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
        resolved, permitted = _references(owner, listener, around)
        serves = accepted.holds
        lack, roots = _authorities(gateway, listener, around)
        if lack is not None and serves:
            resolved, accepted, permitted = lack, not_accepted("NoValidCACertificate", lack.message), False
        yield _Place(owner, listener, kinds, (accepted, conflict, resolved), serves, permitted, roots, {})


def fitting(listener: Listener) -> tuple[RouteKind, ...]:
    match listener.protocol:
        case "HTTP" | "HTTPS":
            return (RouteKind.HTTP, RouteKind.GRPC)
        case "TLS":
            return (RouteKind.TLS,) if listener.passthrough else (RouteKind.TLS, RouteKind.TCP)
        case "TCP":
            return (RouteKind.TCP,)
    return ()


def _references(owner: _Owner, listener: Listener, around: Surroundings) -> tuple[StatusCondition, bool]:
    """Return (condition, permitted): the ResolvedRefs condition of a listener, and whether the listener may use every
    object that it references. `owner`: the Gateway or ListenerSet with the listener. `around`: the objects that the
    Gateway depends on besides its routes."""
    wrong = [*listener.other_kinds, *(kind for kind in listener.kinds if kind not in fitting(listener))]
    condition = RESOLVED
    if wrong:
        what = f"a listener with the protocol {listener.protocol} does not support {', '.join(wrong)}"
        condition = unresolved("InvalidRouteKinds", what)
    for each in listener.certificates:
        lack, permitted = _lack(owner, each, "InvalidCertificateRef", around)
        if not permitted:
            return lack, False
        condition = condition if lack.holds else lack
    return condition, True


def _lack(owner: _Owner, reference: CertificateRef, reason: str, around: Surroundings) -> tuple[StatusCondition, bool]:
    """Return (condition, permitted): the ResolvedRefs condition for a reference to a certificate, and whether the
    Gateway or ListenerSet `owner` may use the object. `reason`: that of the condition if the object has no certificate.
    `around`: the objects that the Gateway depends on besides its routes."""
    named = f"{reference.kind} {reference.namespace}/{reference.name}"
    if (reference.group, reference.kind) != ("", "Secret"):
        kind = f"{reference.kind}.{reference.group}" if reference.group else reference.kind
        return unresolved(reason, f"a certificate must be in a Secret, not in a {kind}"), False
    if not _permitted(owner, reference, around.grants):
        what = f"no ReferenceGrant in {reference.namespace} allows this {owner.place[0]} to use {named}"
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


def _permitted(owner: _Owner, reference: CertificateRef, grants: Iterable[ReferenceGrant]) -> bool:
    source = GrantSource(GROUP, owner.place[0], owner.namespace)
    target = GrantTarget(reference.group, reference.kind, reference.name)
    return reference.namespace == owner.namespace or any(
        grant.namespace == reference.namespace and grant.allows(source, target) for grant in grants
    )


# Attachment


def _attach(
    route: StandardRoute, reference: ParentRef, owner: _Owner, places: list[_Place], around: Surroundings
) -> StatusCondition:
    """Attach a route to each listener (in `places`) of the Gateway or ListenerSet `owner` that the parentRef
    `reference` names and that allows the route. Returns the Accepted condition, which is true if at least one listener
    allows the route. `around`: the objects that the Gateway depends on besides its routes."""
    meant = [
        place
        for place in places
        if reference.section in ("", place.listener.name) and reference.port in (0, place.listener.port)
    ]
    if not meant:
        names = ", ".join(f"{place.listener.name} ({place.listener.port})" for place in places)
        what = f"{reference} matches no listener; the {owner.place[0]}'s listeners are {names}"
        return not_accepted("NoMatchingParent", what)
    allowed = [place for place in meant if _allows(place, route, around.labels)]
    if not allowed:
        what = (
            f"no listener of {owner.place[0]} {owner.namespace}/{owner.name} allows a {route.kind} from the namespace"
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


def _allows(place: _Place, route: StandardRoute, labels: Callable[[str], Labels]) -> bool:
    allowed = place.listener.namespaces
    return route.kind in place.kinds and allowed.allow(route.namespace, place.owner.namespace, labels(route.namespace))


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
        mode, unverified = _mode_for_callers(gateway, place)
        shown = listener.certificates if place.permitted else ()
        tls = ServerTls(
            ServerTlsMode.PASSTHROUGH if listener.passthrough else mode,
            credentials=tuple(CredentialRef(each.name, each.namespace) for each in shown),
            roots=place.roots,
            unverified=unverified,
        )
    port = ServicePort(listener.port, listener.name, PROTOCOLS[listener.protocol])
    return Gateway(
        name=listener_name(place.owner, gateway, listener),
        namespace=gateway.namespace,
        servers=(GatewayServer(port, (listener.hostname or ANY,), listener.name, tls=tls),),
        selector=((GATEWAY_NAME, gateway.name),),
        within=gateway.namespace,
        client_certificate=presented,
        # As old as the younger of the two, so that a new ListenerSet displaces no Secrets of older objects.
        created=max(gateway.created, place.owner.created) if gateway.created and place.owner.created else "",
        origin=place.owner.origin,
    )


def _mode_for_callers(gateway: StandardGateway, place: _Place) -> tuple[ServerTlsMode, bool]:
    """Return (mode, unverified): whether callers of a listener (`place`) that terminates TLS present certificates, and
    whether certificates of any CA are accepted. The stricter of the Gateway's `tls.frontend` and the listener's own
    option decides, so that the author of a ListenerSet cannot weaken what the Gateway requires."""
    check, option = gateway.check_of(place.listener), place.listener.client_certificates
    if not place.roots or check is None:
        return ServerTlsMode(option or "SIMPLE"), False
    if not check.insecure:
        return ServerTlsMode.MUTUAL, False
    return ServerTlsMode(option or "OPTIONAL_MUTUAL"), not option


def _routings(
    gateway: StandardGateway, place: _Place, serving: list[_Place], resolved_routes: Mapping[ObjectKey, ResolvedRoute]
) -> Iterator[VirtualService]:
    owner = place.owner
    bound = (f"{gateway.namespace}/{listener_name(owner, gateway, place.listener)}",)

    def routing(
        first: StandardRoute | None, hosts: tuple[str, ...], **routes: tuple[HttpRoute | L4Route, ...]
    ) -> VirtualService:
        return VirtualService(
            name=first.name if first else owner.name,
            namespace=first.namespace if first else owner.namespace,
            hosts=hosts,
            gateways=bound,
            export_to=(ANY,),
            created=first.created if first else owner.created,
            origin=first.origin if first else owner.origin,
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


def _not_allowed(place: Parent, gateway: StandardGateway) -> str:
    named = f"{place[0]} {place[1]}/{place[2]}"
    return f"`allowedListeners` of Gateway {gateway.namespace}/{gateway.name} does not allow {named}"


def _set_outcome(listener_set: ListenerSet, gateway: StandardGateway, places: list[_Place]) -> ListenerSetOutcome:
    """The conditions of a ListenerSet of a Gateway. `places`: its listeners; empty if the Gateway does not allow it."""
    accepted = ACCEPTED
    if not places:
        accepted = not_accepted("NotAllowed", _not_allowed(listener_set.place, gateway))
    elif bad := [place.listener.name for place in places if not place.is_valid]:
        what = f"some listeners are not valid: {', '.join(bad)}"
        accepted = StatusCondition("Accepted", holds=len(bad) < len(places), reason="ListenersNotValid", message=what)
    reason = "Programmed" if accepted.holds else accepted.reason
    programmed = StatusCondition("Programmed", holds=accepted.holds, reason=reason)
    listeners = tuple(map(_listener_outcome, places))
    return ListenerSetOutcome(
        listener_set.key, gateway.key, (accepted, programmed), listeners, origin=listener_set.origin
    )


def _listener_outcome(place: _Place) -> ListenerOutcome:
    accepted, conflict, references = place.told
    good = place.is_valid and (references.holds or references.reason == "InvalidRouteKinds")
    reason = "Programmed" if good else conflict.reason if conflict.holds else "Invalid"
    programmed = StatusCondition("Programmed", holds=good, reason=reason)
    conditions = (accepted, programmed, conflict, references)
    return ListenerOutcome(place.listener.name, place.kinds, len(place.attached), conditions, place.listener.line)


def _outcome(
    gateway: StandardGateway, places: list[_Place], resolved: StatusCondition, listener_sets: int
) -> GatewayOutcome:
    """The conditions of a Gateway. `places`: its own listeners. `resolved`: the ResolvedRefs condition of its other
    references. `listener_sets`: the number of accepted ListenerSets."""
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
    listeners = tuple(map(_listener_outcome, places))
    return GatewayOutcome(gateway.key, tuple(conditions), listeners, gateway.origin, listener_sets)
