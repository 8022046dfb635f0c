"""Find the reasons for a gateway's resources: for each listener the servers of Gateways, for each filter chain its
server, for each virtual host the VirtualServices that are merged into it, for each secret the Secret object."""

from __future__ import annotations

from collections.abc import Iterator

from envoy.config.listener.v3.listener_components_pb2 import FilterChain
from envoy.config.listener.v3.listener_pb2 import Listener
from envoy.config.route.v3.route_pb2 import RouteConfiguration

from weft.explain.decision import ObjectSource, sources_of
from weft.inspect.reasons import gateway_api as standard
from weft.inspect.reasons import rules
from weft.inspect.reasons.listeners import guards, label, logs
from weft.inspect.reasons.part import Ground, Part, sources
from weft.inspect.reasons.routes import routes_of
from weft.inspect.reasons.rules import DecisionRule
from weft.model.edge import AUTHORITIES, ServedName
from weft.model.names import ObjectKey, Origin
from weft.translate import gateway_tls
from weft.translate.gateway_routes import through
from weft.translate.view import ServerView, ServiceView

_OF_SECRET = ("kubernetes://", "kubernetes-gateway://")
_NOBODY = "nobody"


def listener_parts(ground: Ground, listener: Listener) -> Iterator[Part]:
    yield Part("", "", sources_of(listener.metadata), (rules.GATEWAY_LISTENER,))
    for position, chain in enumerate(listener.filter_chains):
        place = f"filter_chains[{label(listener, position)}]", f"filter_chains[{position}]"
        yield Part(*place, *_chain(ground, listener, chain))
        yield from guards(ground, chain, place)
    yield logs(ground, inbound=False)


def route_parts(ground: Ground, configuration: RouteConfiguration) -> Iterator[Part]:
    serving = [each for each in ground.view.servers if each.bound.route_name == configuration.name]
    yield Part("", "", sources(*(each.bound.origin for each in serving)), (rules.GATEWAY_LISTENER,))
    for position, host in enumerate(configuration.virtual_hosts):
        where, at = f"virtual_hosts[{host.name}]", f"virtual_hosts[{position}]"
        if host.name == _NOBODY:
            yield Part(where, at, (), (rules.UNKNOWN_AT_GATEWAY,))
            continue
        name, _, port = host.name.rpartition(":")
        view = ground.service(name)
        door = _door(view, configuration.name)
        yield Part(where, at, sources_of(host.metadata), _host_rules(door))
        if view is not None and door is not None and not door.misdirected:
            number = int(port) if port.isdecimal() else 0
            yield from routes_of(ground, through(view, door), host, number, (where, at))


def secret_part(ground: Ground, name: str) -> Part:
    for start in _OF_SECRET:
        if name.startswith(start):
            namespace, _, secret = name.removeprefix(start).rpartition("/")
            objects = _secret(ground, namespace or ground.group.namespace, secret)
            if namespace in ("", ground.group.namespace):
                return Part("", "", objects, (rules.OUT_OF_SECRET,))
            return Part("", "", (*objects, *standard.grants(ground, namespace, secret)), (rules.GRANTED_SECRET,))
    if name.startswith(gateway_tls.ROOTS):
        return standard.roots_of_gateway(ground, name)
    asking = [
        each.bound.origin
        for each in ground.view.servers
        if each.bound.server.tls is not None and any(file in name for file in _files(each))
    ]
    return Part("", "", sources(*asking), (rules.FILES_OF_SERVER,))


def _chain(
    ground: Ground, listener: Listener, chain: FilterChain
) -> tuple[tuple[ObjectSource, ...], tuple[DecisionRule, ...]]:
    if not chain.name:  # the chain for plain HTTP of all servers of the port, or for TCP
        return (*sources_of(listener.metadata), *sources_of(chain.metadata)), (rules.FIRST_GATEWAY,)
    served = next((each for each in ground.view.servers if each.bound.route_name == chain.name), None)
    if served is None:
        return sources_of(listener.metadata), (rules.LAST_ACCEPTED,)
    tls = served.bound.server.tls
    closed = tls is not None and tls.terminates and bool(gateway_tls.missing(tls, ground.view))
    by = (rules.FIRST_GATEWAY, rules.MISSING_CREDENTIAL) if closed else (rules.FIRST_GATEWAY,)
    return sources(served.bound.origin), by


def _host_rules(door: ServedName | None) -> tuple[DecisionRule, ...]:
    if door is None:
        return (rules.LAST_ACCEPTED,)
    if door.misdirected:
        return (rules.NAME_OF_ANOTHER_SERVER,)
    by: tuple[DecisionRule, ...] = (rules.MERGED_AT_GATEWAY,) if len(door.routes) > 1 else ()
    return (*by, rules.HTTPS_ALONE) if door.redirects else by


def _door(view: ServiceView | None, route_name: str) -> ServedName | None:
    return next((each for each in view.doors if each.route_name == route_name), None) if view is not None else None


def _secret(ground: Ground, namespace: str, name: str) -> tuple[ObjectSource, ...]:
    """The Secret that contains the credential `name`. A credential NAME-cacert may be a separate Secret, or part of the
    Secret NAME. `ground`: the views of the proxies' group."""
    for secret in dict.fromkeys((name, name.removesuffix(AUTHORITIES))):
        key = ObjectKey("Secret", namespace, secret)
        if values := ground.mesh.get(key):
            return sources(next((value.origin for value in values if value.origin is not None), Origin(key)))
    return ()


def _files(served: ServerView) -> tuple[str, ...]:
    tls = served.bound.server.tls
    if tls is None:
        return ()
    return tuple(file for file in (*(each.certificate for each in tls.files), tls.authorities) if file)
