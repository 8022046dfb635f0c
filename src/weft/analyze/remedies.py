"""Hints for conditions of the Gateway API that do not hold. The input is a condition with the standard's reason
(`model/outcome.py` has the message), the output a hint, such as a similar name that exists, or what the object
needs."""

from __future__ import annotations

from collections.abc import Iterable

from weft.analyze.credentials import meant_secret
from weft.analyze.facts import Facts
from weft.base.suggest import did_you_mean
from weft.mesh.gateway_api.gateways import PROTOCOLS, fitting
from weft.model.gateway_api import Listener
from weft.model.names import ObjectKey
from weft.model.outcome import BackendFlaw, RouteOutcome, StatusCondition

_GRANT = "a ReferenceGrant there, with this namespace in `from` and a {kind} in `to`, allows it"

_OF_ROUTES = {
    "NotAllowedByListeners": "its `allowedRoutes` decide: `namespaces: {from: All}` allows routes of every namespace",
    "NoMatchingListenerHostname": "use a hostname of a listener, or one within its wildcard; without `hostnames` the "
    "route has those of the listeners",
    "NotSupported": "name a Gateway in `parentRefs`",
    "Conflicted": "give each of the two its own hostnames, listener or port",
}
_OF_LISTENERS = {
    "PortUnavailable": "use another port",
    "ProtocolConflict": "give each protocol a port",
    "HostnameConflict": "give each listener a `hostname` or a port of its own",
    "RefNotPermitted": _GRANT.format(kind="Secret or ConfigMap"),
    "InvalidCACertificateRef": "create a ConfigMap of that name, with certificates in `ca.crt`",
}


def of_route(outcome: RouteOutcome, condition: StatusCondition, facts: Facts) -> str:
    """Hint for a route that its parent does not accept."""
    if condition.reason != "NoMatchingParent":
        return _OF_ROUTES.get(condition.reason, "")
    parent = outcome.parent
    if parent.kind == "Service":
        there = any(each.namespace == parent.namespace for each in facts.by_host.get(parent.host, ()))
        if there:
            return "set one of these as `port`, or leave `port` out for all of them"
        return _meant(parent.name, parent.namespace, _services(facts))
    gateway = facts.standard_gateways.get((parent.namespace, parent.name))
    if gateway is None:
        return _meant(parent.name, parent.namespace, facts.standard_gateways)
    if outcome.ours and parent.section and not any(each.name == parent.section for each in gateway.listeners):
        return _near(parent.section, (each.name for each in gateway.listeners))
    return ""


def of_backend(flaw: BackendFlaw, facts: Facts) -> str:
    """Hint for a backend that cannot be called."""
    match flaw.reason:
        case "InvalidKind":
            return "name a Service, the default without `group` and `kind`"
        case "RefNotPermitted":
            return _GRANT.format(kind="Service")
    if flaw.host in facts.by_host:
        return "use one of its ports; until then, requests sent there get 500, and connections are closed"
    name, namespace, *_ = (*flaw.host.split("."), "")
    return (
        _meant(name, namespace, _services(facts))
        or "until it exists, requests sent there get 500, and connections are closed"
    )


def of_listener(key: ObjectKey, index: int, condition: StatusCondition, facts: Facts) -> str:
    """Hint for a listener that cannot be served."""
    gateway = facts.standard_gateways.get((key.namespace, key.name))
    if gateway is None or index >= len(gateway.listeners):
        return ""
    listener = gateway.listeners[index]
    match condition.reason:
        case "UnsupportedProtocol":
            return _near(listener.protocol, PROTOCOLS) or f"write one of {', '.join(PROTOCOLS)}"
        case "InvalidRouteKinds":
            return f"write {' or '.join(fitting(listener)) or 'none'}"
        case "InvalidCertificateRef":
            return _meant_certificate(listener, facts)
    return _OF_LISTENERS.get(condition.reason, "")


def _meant_certificate(listener: Listener, facts: Facts) -> str:
    secrets = {(each.namespace, each.name): credential for each, credential in facts.credentials.items()}
    for each in listener.certificates:
        if (each.group, each.kind) != ("", "Secret"):
            return "name a Secret, the default without `group` and `kind`"
        credential = secrets.get((each.namespace, each.name))
        if credential is None:
            guess = meant_secret(each.name, each.namespace, facts)
            return guess or "create a Secret of that name, with `tls.crt` and `tls.key`"
        if not credential.chain:
            return "it needs `tls.crt` and `tls.key`"
    return ""


def _services(facts: Facts) -> set[tuple[str, str]]:
    own = (each for each in facts.services if each.origin is None or each.origin.key.kind == "Service")
    return {(each.namespace, each.name) for each in own}


def _meant(name: str, namespace: str, known: Iterable[tuple[str, str]]) -> str:
    """Hint: a similar name in the same namespace, or another namespace with an object of this name."""
    places = sorted(known)
    elsewhere = [place for place, other in places if other == name and place != namespace]
    if elsewhere:
        return f"there is one in {elsewhere[0]}: write `namespace: {elsewhere[0]}`"
    return _near(name, (other for place, other in places if place == namespace))


def _near(word: str, known: Iterable[str]) -> str:
    guess = did_you_mean(word, known)
    return guess if guess.startswith("did you") else ""
