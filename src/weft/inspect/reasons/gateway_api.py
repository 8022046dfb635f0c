"""Find the reasons that involve the Gateway API: the order of route rules, the routes that apply to a caller, the
BackendTLSPolicy of a Service, the ReferenceGrant for a Secret, and the ConfigMaps with CA certificates."""

from __future__ import annotations

from weft.explain.decision import ObjectSource
from weft.inspect.reasons import rules
from weft.inspect.reasons.part import Ground, Part, sources
from weft.inspect.reasons.rules import DecisionRule
from weft.model.destination_rule import ClientTls, ClientTlsMode, effective
from weft.model.gateway_api import (
    GROUP,
    LISTENER_SET,
    BackendTls,
    GrantSource,
    GrantTarget,
    ReferenceGrant,
    StandardGateway,
    owner_of,
)
from weft.model.names import ObjectKey
from weft.model.virtual_service import HttpRoute, VirtualService
from weft.translate.gateway_tls import roots_name

_ROUTES = ("HTTPRoute", "GRPCRoute")
_UNUSABLE = 500


def route_rules(route: HttpRoute) -> tuple[DecisionRule, ...]:
    """The rules, as `weft why` shows them, that decide about a route from an HTTPRoute or GRPCRoute, such as the
    order of routes; () for routes from other objects."""
    if route.origin is None or route.origin.key.kind not in _ROUTES:
        return ()
    unusable = route.direct_response is not None and route.direct_response.status == _UNUSABLE
    return (rules.STANDARD_ORDER, rules.NOBODY_TO_SEND_TO) if unusable else (rules.STANDARD_ORDER,)


def host_rules(routings: tuple[VirtualService, ...], deciding: VirtualService | None) -> tuple[DecisionRule, ...]:
    """The rules by which one VirtualService (`deciding`) is used for a host although several objects have routes for
    it. `routings`: all VirtualServices for the host, also those that were derived from Gateway API objects. () if there
    is only one, or if `deciding` is None."""
    attached = [each for each in routings if each.attached and each.http]
    if deciding is None or len(routings) < 2:
        return ()
    if deciding.attached:
        return (rules.CONSUMERS_FIRST,)
    written = sum(1 for each in routings if each.http and not each.attached)
    by: tuple[DecisionRule, ...] = (rules.ONE_VIRTUAL_SERVICE,) if written > 1 else ()
    return (*by, rules.VIRTUAL_SERVICE_FIRST) if attached else by


def tls_by_policy(ground: Ground, host: str, port: int, chosen: ClientTls | None) -> tuple[ObjectSource, ...]:
    """The BackendTLSPolicy from which the TLS settings `chosen` for a host and port come; () if they come from another
    object. `ground`: the views of the proxies' group."""
    if chosen is None:
        return ()
    for derived in ground.mesh.derived():
        for rule in derived.rules:
            declared = effective(rule, port).tls
            same = declared == chosen or (declared is not None and declared.of_gateway and chosen.of_gateway)
            if rule.host == host and same:
                return sources(rule.origin, part="validation")
    return ()


def closed_or_called(chosen: ClientTls) -> DecisionRule:
    if chosen.mode is ClientTlsMode.CLOSED:
        return rules.WITHOUT_CLIENT_CERTIFICATE if chosen.of_gateway else rules.POLICY_WITHOUT_ROOTS
    return rules.TLS_BY_POLICY


def client_certificate(ground: Ground, chosen: ClientTls) -> Part:
    """The reasons for the secret with the client certificate that a gateway presents to a backend, according to the TLS
    settings `chosen`: the Secret, and the Gateways that name it. `ground`: the views of the proxies' group."""
    credential = ground.mesh.credential(chosen.pair) if chosen.pair is not None else None
    naming = (each for each in ground.mesh.gateways_of(ground.group) if each.client_certificate == chosen.pair)
    origins = dict.fromkeys(each.origin for each in naming)
    secret = sources(credential.origin if credential is not None else None)
    return Part("", "", (*secret, *sources(*origins, part="tls.backend")), (rules.CLIENT_CERTIFICATE,))


def roots_of_policy(ground: Ground, policy: tuple[ObjectSource, ...]) -> Part:
    """The reasons for the secret with which a cluster verifies its server: the ConfigMaps of a BackendTLSPolicy.
    `ground`: the views of the proxies' group."""
    named: list[tuple[str, str]] = []
    for each in policy:
        for value in ground.mesh.get(ObjectKey(each.kind, each.namespace, each.name)):
            if isinstance(value, BackendTls):
                named += ((value.namespace, name) for name in value.bundles)
    return Part("", "", (*_bundles(ground, named), *policy), (rules.ROOTS_OUT_OF_CONFIG_MAP,))


def roots_of_gateway(ground: Ground, name: str) -> Part:
    """The reasons for the secret with which a gateway's listener verifies client certificates: the ConfigMaps and the
    Gateway. `ground`: the views of the proxies' group."""
    asking = [
        owner_of(each.bound.gateway)
        for each in ground.view.servers
        if each.bound.server.tls is not None and name == roots_name(each.bound.server.tls.roots)
    ]
    values = (value for key in dict.fromkeys(asking) for value in ground.mesh.get(key))
    gateways = [value for value in values if isinstance(value, StandardGateway)]
    named = [bundle for gateway in gateways for bundle in gateway.bundles]
    origins = (gateway.origin for gateway in gateways)
    return Part("", "", (*_bundles(ground, named), *sources(*origins)), (rules.ROOTS_OUT_OF_CONFIG_MAP,))


def grants(ground: Ground, namespace: str, secret: str) -> tuple[ObjectSource, ...]:
    """The ReferenceGrants that let the group's Gateway, or its ListenerSets, use the Secret `secret` of another
    namespace. `ground`: the views of the proxies' group."""
    keys = (each.bound.origin.key for each in ground.view.servers if each.bound.origin is not None)
    asking = {
        GrantSource(GROUP, "Gateway", ground.group.namespace),
        *(GrantSource(GROUP, LISTENER_SET, key.namespace) for key in keys if key.kind == LISTENER_SET),
    }
    target = GrantTarget("", "Secret", secret)
    candidates = (value for _, values in ground.mesh.values() for value in values if isinstance(value, ReferenceGrant))
    there = (each for each in candidates if each.namespace == namespace)
    return sources(*(each.origin for each in there if any(each.allows(source, target) for source in asking)))


def _bundles(ground: Ground, named: list[tuple[str, str]]) -> tuple[ObjectSource, ...]:
    values = (value for place in named for value in ground.mesh.get(ObjectKey("ConfigMap", *place)))
    return sources(*(value.origin for value in values))
