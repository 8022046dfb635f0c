"""Finds the object at fault when a proxy rejects a resource that is made from many objects. For that it builds trial
resources from the config of only some of the suspected objects: if a proxy rejects a trial, one of those suspects is
at fault.

A trial is a listener that binds no socket, at an address that no connection reaches, or a cluster that no route leads
to. Resources that carry traffic are not changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.listener.v3.listener_components_pb2 import Filter
from envoy.config.listener.v3.listener_pb2 import Listener
from envoy.config.route.v3.route_components_pb2 import VirtualHost
from envoy.config.route.v3.route_pb2 import RouteConfiguration
from envoy.extensions.filters.network.http_connection_manager.v3.http_connection_manager_pb2 import (
    HttpConnectionManager,
)
from msgspec.structs import replace

from weft.model.destination_rule import FIELDS, PolicyLevel, TrafficPolicy, decided_at, effective, line_of
from weft.model.group import ProxyKind
from weft.model.names import ObjectKey, Origin
from weft.model.settings import Settings
from weft.translate import clusters, gateway_listeners
from weft.translate.built import Built, build
from weft.translate.chains import chain
from weft.translate.filters import outbound_filters
from weft.translate.gateway_routes import through
from weft.translate.inbound import virtual_inbound
from weft.translate.names import VIRTUAL_INBOUND
from weft.translate.protos import packed, socket_address
from weft.translate.routes import LARGEST_DIRECT_RESPONSE, chosen, routes
from weft.translate.view import GroupView, ServiceView

TRIAL = "weft-trial"
_NOWHERE = ("127.255.255.254", 9)  # loopback addresses are never intercepted, so no connection reaches the listener


class Suspect(msgspec.Struct, frozen=True):
    """An object that may be at fault (`key`), or only a part of it: the part at `line`."""

    key: ObjectKey
    line: int = 0  # 0: the whole object


class Lineup(msgspec.Struct, frozen=True, eq=False):
    """The suspects behind a rejected resource, and a function that builds the trial resource for some of them, given by
    their positions."""

    suspects: tuple[Suspect, ...]
    trial: Callable[[Sequence[int]], Built]


def of_guards(view: GroupView, listener: str = VIRTUAL_INBOUND) -> Lineup:
    """Return the suspects behind a rejected listener: each rule of the group's AuthorizationPolicies, and its
    RequestAuthentications. `listener`: the name of the listener; a gateway has several."""
    rules = [(policy, rule) for policy in view.authorization if policy.origin for rule in policy.rules]
    tokens = [each for each in view.authentication if each.origin]

    def trial(positions: Sequence[int]) -> Built:
        kept = [rules[position] for position in positions if position < len(rules)]
        some = replace(
            view,
            authorization=tuple(
                replace(policy, rules=tuple(rule for owner, rule in kept if owner is policy))
                for policy in view.authorization
                if any(owner is policy for owner, _ in kept)
            ),
            authentication=tuple(tokens[at - len(rules)] for at in positions if at >= len(rules)),
        )
        listener_resource = virtual_inbound(some)
        if view.kind is ProxyKind.GATEWAY:
            listener_resource = next(
                (each for each in gateway_listeners.listeners(some) if each.name == listener), listener_resource
            )
        return _apart(Listener.FromString(listener_resource.body))

    suspects = [
        *(_suspect(policy.origin, rule.line) for policy, rule in rules),
        *(_suspect(each.origin) for each in tokens),
    ]
    return Lineup(tuple(suspects), trial)


def of_routes(view: ServiceView, port: int) -> Lineup:
    """Return the suspects behind rejected routes of a host: each route, with its object and line."""
    door = next((each for each in view.doors if each.port == port and not each.misdirected), None)
    view = through(view, door) if door is not None else view
    written = [(number, each.resolved) for number, each in enumerate(chosen(view, port)) if each.resolved.origins]
    envoy_routes = routes(view, port)
    for route in envoy_routes:
        route.ClearField("metadata")  # Envoy truncates its error message, so the route should be short

    def trial(positions: Sequence[int]) -> Built:
        host = VirtualHost(
            name=view.host, domains=["*"], routes=[envoy_routes[written[position][0]] for position in positions]
        )
        manager = HttpConnectionManager(stat_prefix=TRIAL)
        manager.route_config.CopyFrom(RouteConfiguration(name=TRIAL, virtual_hosts=[host]))
        manager.route_config.validate_clusters.value = False
        manager.route_config.max_direct_response_body_size_bytes.value = LARGEST_DIRECT_RESPONSE
        manager.http_filters.extend(outbound_filters())
        end = Filter(name="envoy.filters.network.http_connection_manager", typed_config=packed(manager))
        return _apart(Listener(filter_chains=[chain("", end)]))

    return Lineup(tuple(_suspect(each.origins[0], each.route.line) for _, each in written), trial)


def of_cluster(view: ServiceView, refused: Built, settings: Settings) -> Lineup:
    """Return the suspects behind a rejected cluster (`refused`): the service, and the policy of the DestinationRule at
    each level (port, subset, whole host) that has settings. If a trial without any policy is rejected, the rule is not
    at fault."""
    service, rule = view.service, view.rule
    number, subset_name = refused.name.split("|")[1:3]
    port = service.port(int(number)) if service is not None and number.isdecimal() else None
    if service is None or rule is None or port is None:
        return Lineup((), lambda positions: refused)
    subset = next((each for each in rule.subsets if each.name == subset_name), None)
    chosen = effective(rule, port.number, subset)
    settings_by_level: dict[PolicyLevel, dict[str, object]] = {}
    for field in FIELDS:
        level = decided_at(rule, port.number, field, subset).level
        if level is not None:
            settings_by_level.setdefault(level, {})[field] = getattr(chosen, field)
    levels = tuple(settings_by_level)

    def trial(positions: Sequence[int]) -> Built:
        kept = {
            name: value
            for position in positions
            if position
            for name, value in settings_by_level[levels[position - 1]].items()
        }
        alone = replace(rule, policy=TrafficPolicy(**kept), subsets=()) if kept else None  # type: ignore[arg-type]
        cluster = Cluster.FromString(clusters.outbound(replace(view, rule=alone), port, settings)[0].body)
        cluster.name = TRIAL
        if cluster.type == Cluster.EDS:  # a trial cluster must not request endpoints
            cluster.type = Cluster.STATIC
            cluster.ClearField("eds_cluster_config")
        return build(TRIAL, cluster)

    of_rule = (
        _suspect(
            rule.origin_of(subset if level in (PolicyLevel.SUBSET, PolicyLevel.SUBSET_PORT) else None),
            line_of(level, rule, port.number, subset),
        )
        for level in levels
    )
    return Lineup((_suspect(service.origin), *of_rule), trial)


def _apart(listener: Listener) -> Built:
    listener.name = TRIAL
    listener.address.CopyFrom(socket_address(*_NOWHERE))
    listener.ClearField("additional_addresses")
    listener.ClearField("access_log")
    listener.bind_to_port.value = False
    return build(TRIAL, listener)


def _suspect(origin: Origin | None, line: int = 0) -> Suspect:
    return Suspect(origin.key if origin else ObjectKey("", "", ""), line)
