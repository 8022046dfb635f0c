"""Find the reasons for a listener: for each filter chain the objects that name its port and decide its mTLS mode,
and for each policy and issuer in the chain the object and its precedence."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from envoy.config.core.v3.base_pb2 import TrafficDirection
from envoy.config.listener.v3.listener_components_pb2 import FilterChain
from envoy.config.listener.v3.listener_pb2 import Listener
from envoy.config.rbac.v3.rbac_pb2 import RBAC
from envoy.extensions.filters.http.jwt_authn.v3.config_pb2 import JwtAuthentication
from envoy.extensions.filters.http.rbac.v3 import rbac_pb2 as http_rbac
from envoy.extensions.filters.network.http_connection_manager.v3.http_connection_manager_pb2 import (
    HttpConnectionManager,
)
from envoy.extensions.filters.network.rbac.v3 import rbac_pb2 as network_rbac
from google.protobuf.any_pb2 import Any as Packed

from weft.explain.decision import ObjectSource, policy_source, sources_of
from weft.inspect.reasons import rules
from weft.inspect.reasons.clusters import entrance, workloads
from weft.inspect.reasons.part import Ground, Part, sources
from weft.inspect.reasons.rules import DecisionRule
from weft.model.access_log import Reporter
from weft.model.authorization_policy import Action, AuthorizationPolicy
from weft.model.inbound_port import InboundPort
from weft.model.peer_authentication import PeerAuthentication, decider
from weft.model.service import Protocol
from weft.model.settings import Settings
from weft.model.telemetry import Telemetry
from weft.translate import hold, names
from weft.translate.authorization import AUDITED, DISGUISED_HEADER, DISGUISED_PATH
from weft.translate.request_authentication import written_by
from weft.translate.routes import routed_by_address

_Message = TypeVar("_Message", HttpConnectionManager, JwtAuthentication, http_rbac.RBAC, network_rbac.RBAC)
_BLACK_HOLE_CHAIN = "-blackhole"
_DEFAULT = Settings()


def parts(ground: Ground, listener: Listener) -> Iterator[Part]:
    inbound = listener.traffic_direction == TrafficDirection.INBOUND
    yield _whole(ground, listener)
    for position, chain in enumerate(listener.filter_chains):
        place = f"filter_chains[{label(listener, position)}]", f"filter_chains[{position}]"
        if inbound:
            yield from _entrance(ground, listener, chain, place)
        else:
            yield from _way_out(ground, listener, chain, place)
    if listener.HasField("default_filter_chain"):
        place = "default_filter_chain", "default_filter_chain"
        yield from _way_out(ground, listener, listener.default_filter_chain, place)
    if listener.HasField("listener_filters_timeout") and listener.listener_filters_timeout.ToNanoseconds():
        yield _detection(ground)
    yield logs(ground, inbound=inbound)


def _whole(ground: Ground, listener: Listener) -> Part:
    if listener.name == names.VIRTUAL_INBOUND:
        return Part("", "", workloads(ground), (rules.INBOUND_LISTENER,))
    if listener.name == names.VIRTUAL_OUTBOUND:
        return Part("", "", (), (rules.OUTBOUND_LISTENER,))
    if listener.name in (names.AGAIN, names.UNKNOWN):
        return Part("", "", *ground.on_demand())
    if names.is_own_listener(listener.name):
        objects = sources(ground.sidecar.origin if ground.sidecar else None)
        return Part("", "", objects, (rules.OWN_LISTENER, rules.NEAREST_SIDECAR))
    if listener.name.startswith("0.0.0.0_"):
        made_by = sources_of(listener.metadata)
        shared = (rules.CHAIN_ON_SHARED_PORT,) if made_by else ()
        return Part("", "", made_by, (rules.LISTENER_PER_HTTP_PORT, *shared))
    return Part("", "", sources_of(listener.metadata), (rules.LISTENER_PER_ADDRESS, rules.FIRST_CLAIM))


# Inbound


def _entrance(ground: Ground, listener: Listener, chain: FilterChain, place: tuple[str, str]) -> Iterator[Part]:
    if chain.name.endswith(_BLACK_HOLE_CHAIN):
        yield Part(*place, (), (rules.INBOUND_LOOP,))
        return
    number = chain.filter_chain_match.destination_port.value
    port = next((each for each in ground.view.inbound if each.number == number), None)
    named, by_name = entrance(ground, port) if port is not None else ((), (rules.INBOUND_REST,))
    objects, by_mode = _mode(ground, number)
    yield Part(*place, (*objects, *named), (*by_mode, *by_name, *_protocol(port)))
    yield from guards(ground, chain, place)


def _mode(ground: Ground, number: int) -> tuple[tuple[ObjectSource, ...], tuple[DecisionRule, ...]]:
    policies = ground.mesh.policies(PeerAuthentication, ground.group)
    deciding = decider(policies, ground.mesh.settings.root_namespace, number)
    if deciding is None:
        return (), (rules.PERMISSIVE,)
    by_port = dict(deciding.ports).get(number) is not None
    part = f"portLevelMtls[{number}]" if by_port else ""
    return sources(deciding.origin, part=part), (rules.PEER_LEVELS,)


def _protocol(port: InboundPort | None) -> tuple[DecisionRule, ...]:
    if port is None or port.protocol is Protocol.UNDECLARED:
        alone: tuple[DecisionRule, ...] = (rules.PROTOCOL_DETECTED,)
    else:
        alone = () if port.carried.detected else (rules.PROTOCOL_DECLARED,)
    return (*alone, rules.CALLERS_TOLD_APART) if port is not None and port.others else alone


def guards(ground: Ground, chain: FilterChain, place: tuple[str, str]) -> Iterator[Part]:
    for position, each in enumerate(chain.filters):
        inside = f"{place[0]}.filters[{each.name}].typed_config", f"{place[1]}.filters[{position}].typed_config"
        if (network := _opened(each.typed_config, network_rbac.RBAC())) is not None:
            yield from _policies(ground, network, inside)
        elif (manager := _opened(each.typed_config, HttpConnectionManager())) is not None:
            yield from _http_guards(ground, manager, inside)


def _http_guards(ground: Ground, manager: HttpConnectionManager, place: tuple[str, str]) -> Iterator[Part]:
    labels = _labels([each.name for each in manager.http_filters])
    for position, each in enumerate(manager.http_filters):
        inside = (
            f"{place[0]}.http_filters[{labels[position]}].typed_config",
            f"{place[1]}.http_filters[{position}].typed_config",
        )
        if (check := _opened(each.typed_config, JwtAuthentication())) is not None:
            written = written_by(ground.view)
            for provider in sorted(check.providers):
                origin = written[provider].origin if provider in written else None
                where = f".providers[{provider}]"
                yield Part(inside[0] + where, inside[1] + where, sources(origin), (rules.TOKEN_OPTIONAL,))
        elif (decision := _opened(each.typed_config, http_rbac.RBAC())) is not None:
            yield from _policies(ground, decision, inside)
    if manager.HasField("route_config"):
        where = ".route_config.virtual_hosts[0].routes[0].route"
        for field, rule in (("timeout", rules.NO_TIMEOUT), ("retry_policy", rules.RETRIES_TO_WORKLOAD)):
            yield Part(f"{place[0]}{where}.{field}", f"{place[1]}{where}.{field}", (), (rule,))


def _policies(ground: Ground, config: http_rbac.RBAC | network_rbac.RBAC, place: tuple[str, str]) -> Iterator[Part]:
    for field, rbac in (("rules", config.rules), ("shadow_rules", config.shadow_rules)):
        for name in sorted(rbac.policies):
            by = _policy_rules(ground, name, rbac, config, shadow=field == "shadow_rules")
            where = f".{field}.policies[{name}]"
            yield Part(place[0] + where, place[1] + where, policy_source(name) or _refused(ground, name), by)


def _policy_rules(
    ground: Ground, name: str, rbac: RBAC, config: http_rbac.RBAC | network_rbac.RBAC, *, shadow: bool
) -> tuple[DecisionRule, ...]:
    if name in (DISGUISED_PATH, DISGUISED_HEADER):
        return (rules.DISGUISES,)
    source = next(iter(policy_source(name)), None)
    policies = ground.view.authorization
    written = next((each for each in policies if source and _is(each, source)), None)
    if written is None:
        return (rules.REFUSED_AUTHENTICATION,) if source is None else (rules.LAST_ACCEPTED,)
    if written.refused:
        return (rules.REFUSED_POLICY,)
    if written.action is Action.CUSTOM:
        if written.dry_run:
            return (rules.DRY_RUN,)
        return (rules.CUSTOM,) if shadow else (rules.NO_AUTHORIZER,)
    if written.action is Action.AUDIT or config.shadow_rules_stat_prefix == AUDITED:
        return (rules.AUDIT,)
    if shadow:
        return (rules.DRY_RUN,)
    several = (rules.MESH_POLICIES_FIRST,) if len({each.origin for each in policies}) > 1 else ()
    return (rules.ALLOW if rbac.action == RBAC.ALLOW else rules.DENY, *several)


def _is(policy: AuthorizationPolicy, source: ObjectSource) -> bool:
    return (policy.namespace, policy.name) == (source.namespace, source.name)


def _refused(ground: Ground, name: str) -> tuple[ObjectSource, ...]:
    if name in (DISGUISED_PATH, DISGUISED_HEADER):
        return ()
    return sources(*(each.origin for each in ground.view.authentication if each.refused))


# Outbound


def _way_out(ground: Ground, listener: Listener, chain: FilterChain, place: tuple[str, str]) -> Iterator[Part]:
    if chain.name.endswith(_BLACK_HOLE_CHAIN):
        yield Part(*place, (), (rules.INBOUND_LOOP,))
    elif chain.name in hold.CHAINS:
        yield Part(*place, *ground.on_demand())
    elif chain.name in ("PassthroughFilterChain", f"{names.VIRTUAL_OUTBOUND}-catchall-tcp"):
        yield Part(*place, *ground.outbound())
    elif manager := _manager(chain):
        routes = (rules.LISTENER_PER_HTTP_PORT, rules.ROUTES_PER_PORT)
        own = listener.metadata.ByteSize() > 0 and not manager.rds.route_config_name.isdecimal()
        view = ground.service(manager.rds.route_config_name.rpartition(":")[0]) if own else None
        detected = rules.ROUTES_BY_ADDRESS if view is not None and routed_by_address(view) else rules.PROTOCOL_DETECTED
        yield Part(*place, sources_of(listener.metadata) if own else (), (detected,) if own else routes)
    else:
        yield Part(*place, *_stream(ground, listener, chain))


def _stream(
    ground: Ground, listener: Listener, chain: FilterChain
) -> tuple[tuple[ObjectSource, ...], tuple[DecisionRule, ...]]:
    """Return (objects, rules) of a TCP filter chain: the objects that it comes from, which are the service and a
    VirtualService if there is one, and the decision rule for its routes, which depends on whether there is a
    VirtualService. `ground`: the views of the proxies' group."""
    made_by = sources_of(listener.metadata)
    if chain.name:  # on a shared port, the chain is named after its host
        view = ground.service(chain.name.rpartition(":")[0])
        origins = (
            (view.service.origin if view.service else None, *(each.origin for each in view.routes[:1])) if view else ()
        )
        made_by = sources(*origins)
    routed = any(source.kind == "VirtualService" for source in made_by)
    return made_by, (rules.ROUTES_IN_ORDER if routed else rules.ROUTE_TO_SERVICE,)


# Inbound and outbound


def _detection(ground: Ground) -> Part:
    settings = ground.mesh.settings
    path = "listener_filters_timeout"
    if settings.detection_timeout != _DEFAULT.detection_timeout:
        return Part(path, path, sources(settings.origin), (rules.DETECTION_TIMEOUT_OF_MESH,))
    return Part(path, path, (), (rules.DETECTION_TIMEOUT,))


def logs(ground: Ground, *, inbound: bool) -> Part:
    side = Reporter.SERVER if inbound else Reporter.CLIENT
    speaking = [
        each
        for each in ground.mesh.policies(Telemetry, ground.group)
        if any(rule.reporter in (side, Reporter.BOTH) for rule in each.access_logging)
    ]
    if speaking:
        narrowest_first = sources(*(each.origin for each in reversed(speaking)))
        return Part("access_log", "access_log", narrowest_first, (rules.TELEMETRY_LEVELS,))
    settings = ground.mesh.settings
    if settings.logs:
        return Part("access_log", "access_log", sources(settings.origin), (rules.ACCESS_LOG_OF_MESH,))
    return Part("access_log", "access_log", (), (rules.NO_ACCESS_LOG,))


def label(listener: Listener, position: int) -> str:
    return _labels([each.name for each in listener.filter_chains])[position]


def _labels(names: list[str]) -> list[str]:
    """A unique label for each name: the name itself, followed by its position if others have the same name, or only
    the position if it is empty."""
    return [
        str(at) if not name else name if names.count(name) == 1 else f"{name}#{at}" for at, name in enumerate(names)
    ]


def _manager(chain: FilterChain) -> HttpConnectionManager | None:
    managers = (_opened(each.typed_config, HttpConnectionManager()) for each in chain.filters)
    return next((each for each in managers if each is not None), None)


def _opened(packed: Packed, into: _Message) -> _Message | None:
    return into if packed.Unpack(into) else None
