"""Hints for conditions of the Gateway API that do not hold. The input is a condition with the standard's reason
(`model/outcome.py` has the message), the output a hint, such as a similar name that exists, or what the object
needs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from weft.analyze.credentials import meant_secret
from weft.analyze.facts import Facts
from weft.base.suggest import did_you_mean
from weft.mesh.gateway_api.gateways import PROTOCOLS, fitting
from weft.model.gateway_api import LISTENER_SET, CertificateRef, ListenerSet, StandardGateway
from weft.model.outcome import BackendFlaw, GatewayOutcome, ListenerSetOutcome, RouteOutcome, StatusCondition

_GRANT = "a ReferenceGrant in that namespace, with this namespace in `from` and a {kind} in `to`, allows the reference"

_OF_ROUTES = {
    "NotAllowedByListeners": "the listener's `allowedRoutes` decide: `namespaces: {from: All}` allows routes of every "
    "namespace",
    "NoMatchingListenerHostname": "use a hostname of a listener, or one within its wildcard; without `hostnames` the "
    "route has those of the listeners",
    "NotSupported": "name a Gateway in `parentRefs`",
    "Conflicted": "give each of the two routes its own hostnames, listener or port",
}
_OF_LISTENERS = {
    "PortUnavailable": "use another port",
    "ProtocolConflict": "use one port per protocol",
    "HostnameConflict": "give each listener a `hostname` or a port of its own",
    "RefNotPermitted": _GRANT.format(kind="Secret or ConfigMap"),
    "InvalidCACertificateRef": "create a ConfigMap of that name, with certificates in `ca.crt`",
}


def of_route(outcome: RouteOutcome, told: StatusCondition, facts: Facts) -> str:
    """Hint for a Gateway API route (`outcome`) that its parent does not accept; "" if there is none. `told`: the
    condition that does not hold."""
    if told.reason != "NoMatchingParent":
        return _OF_ROUTES.get(told.reason, "")
    parent = outcome.parent
    if parent.kind == "Service":
        there = any(each.namespace == parent.namespace for each in facts.by_host.get(parent.host, ()))
        if there:
            return "set `port` to one of the ports of the Service, or leave `port` out for all its ports"
        return _meant(parent.name, parent.namespace, _services(facts))
    known: Mapping[tuple[str, str], StandardGateway | ListenerSet] = facts.standard_gateways
    if parent.kind == LISTENER_SET:
        known = facts.listener_sets
    owner = known.get((parent.namespace, parent.name))
    if owner is None:
        return _meant(parent.name, parent.namespace, known)
    if outcome.ours and parent.section and not any(each.name == parent.section for each in owner.listeners):
        return _near(parent.section, (each.name for each in owner.listeners))
    return ""


def of_backend(flaw: BackendFlaw, facts: Facts) -> str:
    """Hint for a backend of a Gateway API route that cannot be called. `flaw`: the backend's host and the reason."""
    match flaw.reason:
        case "InvalidKind":
            return "name a Service: leave out `group` and `kind`"
        case "RefNotPermitted":
            return _GRANT.format(kind="Service")
    if flaw.host in facts.by_host:
        return "use a port of the Service; until then, requests to this backend get 500, and connections are closed"
    name, namespace, *_ = (*flaw.host.split("."), "")
    return (
        _meant(name, namespace, _services(facts))
        or "until the Service exists, requests to this backend get 500, and connections are closed"
    )


def of_listener_set(outcome: ListenerSetOutcome, told: StatusCondition, facts: Facts) -> str:
    """Hint for a ListenerSet (`outcome`) that its Gateway does not accept; "" if there is none. `told`: the condition
    that does not hold."""
    if told.reason == "NotAllowed":
        return "`allowedListeners: {namespaces: {from: All}}` in the Gateway allows ListenerSets of every namespace"
    if (outcome.gateway.namespace, outcome.gateway.name) in facts.standard_gateways:
        return ""
    return _meant(outcome.gateway.name, outcome.gateway.namespace, facts.standard_gateways)


def of_listener(owner: StandardGateway | ListenerSet | None, index: int, told: StatusCondition, facts: Facts) -> str:
    """Hint for a listener of a Gateway or ListenerSet (`owner`) that cannot be served; "" if there is none. `index`:
    the position of the listener. `told`: the condition that does not hold."""
    if owner is None or index >= len(owner.listeners):
        return ""
    listener = owner.listeners[index]
    match told.reason:
        case "UnsupportedProtocol":
            return _near(listener.protocol, PROTOCOLS) or f"write one of {', '.join(PROTOCOLS)}"
        case "InvalidRouteKinds":
            return f"write {' or '.join(fitting(listener)) or 'none'}"
        case "InvalidCertificateRef":
            return _meant_certificate(listener.certificates, facts)
    return _OF_LISTENERS.get(told.reason, "")


def of_client_certificate(outcome: GatewayOutcome, told: StatusCondition, facts: Facts) -> str:
    """Hint for a Gateway (`outcome`) that cannot use its client certificate for backends; "" if there is none. `told`:
    the condition that does not hold."""
    gateway = facts.standard_gateways.get((outcome.gateway.namespace, outcome.gateway.name))
    reference = gateway.client_certificate if gateway is not None else None
    if reference is None or told.reason == "RefNotPermitted":
        return _OF_LISTENERS.get(told.reason, "")
    return _meant_certificate((reference,), facts)


def _meant_certificate(references: Iterable[CertificateRef], facts: Facts) -> str:
    held = {(each.namespace, each.name): credential for each, credential in facts.credentials.items()}
    for each in references:
        if (each.group, each.kind) != ("", "Secret"):
            return "name a Secret: leave out `group` and `kind`"
        credential = held.get((each.namespace, each.name))
        if credential is None:
            guess = meant_secret(each.name, each.namespace, facts)
            return guess or "create a Secret of that name, with `tls.crt` and `tls.key`"
        if not credential.chain:
            return "the Secret needs `tls.crt` and `tls.key`"
    return ""


def _services(facts: Facts) -> set[tuple[str, str]]:
    own = (each for each in facts.services if each.origin is None or each.origin.key.kind == "Service")
    return {(each.namespace, each.name) for each in own}


def _meant(name: str, namespace: str, known: Iterable[tuple[str, str]]) -> str:
    """Hint for an object that does not exist: another namespace that has an object of this name, or else a similar
    name in the same namespace; "" if there is neither. `known`: the existing objects, by namespace and name."""
    places = sorted(known)
    elsewhere = [place for place, other in places if other == name and place != namespace]
    if elsewhere:
        return f"namespace {elsewhere[0]} has an object of this name: write `namespace: {elsewhere[0]}`"
    return _near(name, (other for place, other in places if place == namespace))


def _near(word: str, known: Iterable[str]) -> str:
    guess = did_you_mean(word, known)
    return guess if guess.startswith("did you") else ""
