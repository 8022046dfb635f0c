"""Find the reasons for a route configuration: for each virtual host and route its object, and for timeout, retries
and destination the object or the default."""

from __future__ import annotations

from collections.abc import Iterator

from envoy.config.route.v3.route_components_pb2 import Route
from envoy.config.route.v3.route_components_pb2 import VirtualHost as EnvoyVirtualHost
from envoy.config.route.v3.route_pb2 import RouteConfiguration

from weft.explain.decision import ObjectSource, sources_of
from weft.inspect.reasons import gateway_api as standard
from weft.inspect.reasons import rules
from weft.inspect.reasons.part import Ground, Part, sources
from weft.inspect.reasons.rules import DecisionRule
from weft.translate.delegates import DelegatedRoute
from weft.translate.routes import routes_with_reasons
from weft.translate.view import ServiceView, deciding

UNCLAIMED = ("allow_any", "block_all")  # names of the virtual host for unknown hosts


def parts(ground: Ground, configuration: RouteConfiguration) -> Iterator[Part]:
    scoped, by_scope = ground.scope()
    yield Part("", "", scoped, (rules.ROUTES_PER_PORT, *by_scope))
    for position, host in enumerate(configuration.virtual_hosts):
        where, at = f"virtual_hosts[{host.name}]", f"virtual_hosts[{position}]"
        if host.name in UNCLAIMED:
            objects, by = ground.outbound()
            yield Part(where, at, objects, by)
            yield Part(f"{where}.routes[{host.name}]", f"{at}.routes[0]", objects, by)
            continue
        name, _, port = host.name.rpartition(":")
        view = ground.service(name)
        yield Part(where, at, sources_of(host.metadata), _host_rules(view, name))
        yield from routes_of(ground, view, host, int(port) if port.isdecimal() else 0, (where, at))


def _host_rules(view: ServiceView | None, host: str) -> tuple[DecisionRule, ...]:
    if view is None:
        return (rules.LAST_ACCEPTED,)
    if not view.routes:
        return (rules.ROUTE_TO_SERVICE,)
    routing = deciding(view)
    by = standard.host_rules(tuple(each for each in view.routes if each.http), routing)
    if routing is not None and host not in routing.hosts:
        by += (rules.EXACT_HOST_FIRST,)
    return by


def routes_of(
    ground: Ground, view: ServiceView | None, host: EnvoyVirtualHost, port: int, place: tuple[str, str]
) -> Iterator[Part]:
    """The reasons for each route of the virtual host `host` at a port, and for the settings of the route. `view`: the
    view from which the host was translated; None if unknown. `place`: the path of the virtual host in its resource,
    twice, as in `Part`: with names (`virtual_hosts[NAME]`) and with positions (`virtual_hosts[0]`). `ground`: the views
    of the proxies' group."""
    written = routes_with_reasons(view, port) if view is not None else []
    # The served config may be older than the mesh. Where they differ, only the metadata in the config is used.
    agree = view is not None and list(host.routes) == [route for route, _ in written]
    labels = _labels(host)
    for position, route in enumerate(host.routes):
        where, at = f"{place[0]}.routes[{labels[position]}]", f"{place[1]}.routes[{position}]"
        configured = written[position][1] if agree else None
        resolved = configured.resolved if configured is not None else None
        made_by = sources_of(route.metadata)
        yield Part(where, at, made_by, _route_rules(view, resolved, agree=agree))
        if agree and view is not None and route.HasField("route"):
            yield from _action(ground, view, route, resolved, made_by, (f"{where}.route", f"{at}.route"))


def _route_rules(view: ServiceView | None, resolved: DelegatedRoute | None, *, agree: bool) -> tuple[DecisionRule, ...]:
    if view is None or not agree:
        return (rules.LAST_ACCEPTED,)
    if resolved is None:
        return (rules.ROUTES_FOR_OTHERS if deciding(view) is not None else rules.ROUTE_TO_SERVICE,)
    if by := standard.route_rules(resolved.route):
        return by
    return (rules.ROUTES_IN_ORDER, rules.DELEGATED) if len(resolved.origins) > 1 else (rules.ROUTES_IN_ORDER,)


def _action(
    ground: Ground,
    view: ServiceView,
    route: Route,
    resolved: DelegatedRoute | None,
    made_by: tuple[ObjectSource, ...],
    place: tuple[str, str],
) -> Iterator[Part]:
    written = resolved.route if resolved is not None else None
    joined = (rules.DELEGATED,) if resolved is not None and len(resolved.origins) > 1 else ()

    def part(field: str, objects: tuple[ObjectSource, ...], *by: DecisionRule) -> Part:
        return Part(f"{place[0]}.{field}", f"{place[1]}.{field}", objects, by)

    if written is not None and written.timeout is not None:
        yield part("timeout", made_by, *joined)
    else:
        yield part("timeout", (), rules.NO_TIMEOUT)
    if written is not None and written.retries is not None:
        yield part("retry_policy", made_by, *joined)
    elif view.caller.retries is not None:
        yield part("retry_policy", sources(ground.mesh.settings.origin), rules.RETRIES_OF_MESH)
    else:
        yield part("retry_policy", (), rules.RETRIES)
    specifier = route.route.WhichOneof("cluster_specifier") or "cluster"
    if written is not None and any(not each.destination.port for each in written.route):
        yield part(specifier, made_by, rules.DESTINATION_PORT)
    else:
        yield part(specifier, made_by, *(() if written is not None else (rules.ROUTE_TO_SERVICE,)))
    if route.route.hash_policy:
        targets = (each.rule for each in view.targets if each.rule is not None)
        origins = (each.origin for each in (view.rule, *targets) if each is not None)
        yield part("hash_policy", sources(*origins), rules.HASH_FROM_RULE)


def _labels(host: EnvoyVirtualHost) -> list[str]:
    """A label for each route: its name, or its position if it has no name or another route has the same name."""
    names = [route.name for route in host.routes]
    return [name if name and names.count(name) == 1 else str(at) for at, name in enumerate(names)]
