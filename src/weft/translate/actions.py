"""Translates the action of an http route: destinations, timeout, retries, rewrites and header changes; or a redirect or
a direct response."""

from __future__ import annotations

import re
from datetime import timedelta

from envoy.config.core.v3.base_pb2 import HeaderValueOption, RuntimeFractionalPercent
from envoy.config.route.v3.route_components_pb2 import (
    DirectResponseAction,
    RedirectAction,
    Route,
    RouteAction,
    RouteMatch,
    WeightedCluster,
)
from envoy.type.v3.percent_pb2 import FractionalPercent

from weft.model.destination_rule import ConsistentHash, HashKey
from weft.model.virtual_service import (
    Destination,
    DirectResponse,
    HeaderChanges,
    Headers,
    HttpRoute,
    Redirect,
    Retries,
    WeightedDestination,
)
from weft.translate import names, policy, retries
from weft.translate.commands import harmless
from weft.translate.protos import duration
from weft.translate.view import ServiceView

_CODES = {
    301: RedirectAction.MOVED_PERMANENTLY,
    302: RedirectAction.FOUND,
    303: RedirectAction.SEE_OTHER,
    307: RedirectAction.TEMPORARY_REDIRECT,
    308: RedirectAction.PERMANENT_REDIRECT,
}
_USUAL = {"http": 80, "https": 443}
_AUTHORITY = frozenset({"host", ":authority"})


def act(route: Route, written: HttpRoute, view: ServiceView, port: int) -> None:
    """Set the action of the Envoy route `route` (forward, redirect or direct response) and its header changes, as the
    configured route `written` declares. `view`: the called host. `port`: the called port."""
    change_headers(route, written.headers)
    if written.redirect is not None:
        route.redirect.CopyFrom(_redirect(written.redirect, port, route.match, encrypted=view.caller.encrypted))
    elif written.direct_response is not None:
        route.direct_response.CopyFrom(_answer(written.direct_response))
    else:
        _forward(route, written, view, port)


def plain(view: ServiceView, port: int) -> RouteAction:
    """Return the action for requests to a service without a VirtualService: forward to the service itself, with the
    default retries and no timeout."""
    action = RouteAction(cluster=names.outbound_cluster(view.host, port))
    wait(action, None)
    _retry(action, None, view)
    _hash_by(action, view, Destination(view.host), port)
    return action


def _retry(action: RouteAction, written: Retries | None, view: ServiceView) -> None:
    """Set the retries of an action: those of its route (`written`; None if it sets none), else those of the MeshConfig,
    else weft's default. With 0 attempts there is no retry policy."""
    configured = written or view.caller.retries
    if configured is None:
        action.retry_policy.CopyFrom(retries.by_default())
    elif configured.attempts > 0:
        action.retry_policy.CopyFrom(retries.policy(configured))


def wait(action: RouteAction, timeout: timedelta | None) -> None:
    """Set the timeout of an action; None means no timeout. The deadline that a gRPC caller sends also applies, up to
    the configured timeout."""
    action.timeout.CopyFrom(duration(timeout or timedelta(0)))
    # max_grpc_timeout is deprecated, but its successor, max_stream_duration, would make Envoy ignore `timeout`.
    action.max_grpc_timeout.CopyFrom(duration(timeout or timedelta(0)))


def destination_cluster(view: ServiceView, destination: Destination, port: int) -> str:
    target = view.target(destination.host)
    number = destination_port(view, destination, port)
    chosen = target is not None and target.chosen
    return names.outbound_cluster(destination.host, number, destination.subset, chosen=chosen)


def destination_port(view: ServiceView, destination: Destination, port: int) -> int:
    """Return the port of a destination: the configured port; else the only port of the destination's service; else
    `port`, the called port."""
    if destination.port:
        return destination.port
    if view.service is not None and destination.host == view.host:
        ports = tuple(entry.number for entry in view.service.ports)
    else:
        target = view.target(destination.host)
        ports = target.ports if target else ()
    return ports[0] if len(ports) == 1 else port


def fraction(percentage: float) -> FractionalPercent:
    return FractionalPercent(numerator=round(percentage * 10_000), denominator=FractionalPercent.MILLION)


def change_headers(message: Route | WeightedCluster.ClusterWeight, headers: Headers) -> None:
    message.request_headers_to_add.extend(_additions(headers.request))
    message.request_headers_to_remove.extend(headers.request.remove)
    message.response_headers_to_add.extend(_additions(headers.response))
    message.response_headers_to_remove.extend(headers.response.remove)


def taking_part(destinations: tuple[WeightedDestination, ...]) -> tuple[WeightedDestination, ...]:
    """Return the destinations that get requests: those with a weight above 0, or the first destination if all weights
    are 0."""
    return tuple(entry for entry in destinations if entry.weight > 0) or destinations[:1]


def _forward(route: Route, written: HttpRoute, view: ServiceView, port: int) -> None:
    action: RouteAction = route.route
    destinations = taking_part(written.route)
    host = _authority(written.headers)
    if len(destinations) == 1 and not written.failing:
        only = destinations[0]
        action.cluster = destination_cluster(view, only.destination, port)
        change_headers(route, only.headers)
        host = host or _authority(
            only.headers
        )  # the route's value wins, as with several destinations, where Envoy applies it last
    else:
        for entry in destinations:
            cluster = action.weighted_clusters.clusters.add()
            cluster.name = destination_cluster(view, entry.destination, port)
            cluster.weight.value = entry.weight
            change_headers(cluster, entry.headers)
            if own := _authority(entry.headers):
                cluster.host_rewrite_literal = own
        if written.failing:
            action.weighted_clusters.clusters.add(name=names.NO_BACKEND).weight.value = written.failing
            action.cluster_not_found_response_code = RouteAction.INTERNAL_SERVER_ERROR
    if written.rewrite is not None:
        host = written.rewrite.authority or host
        if written.rewrite.regex_match:
            action.regex_rewrite.pattern.regex = written.rewrite.regex_match
            action.regex_rewrite.substitution = written.rewrite.regex_rewrite
        elif written.rewrite.uri:
            action.prefix_rewrite = written.rewrite.uri
        elif written.rewrite.prefix:
            replace_prefix(action, written.rewrite.prefix, route.match)
    if host:
        action.host_rewrite_literal = host
    wait(action, written.timeout)
    _retry(action, written.retries, view)
    for mirror in written.mirrors:
        if mirror.percentage > 0:
            shadow = action.request_mirror_policies.add()
            shadow.cluster = destination_cluster(view, mirror.destination, port)
            shadow.runtime_fraction.CopyFrom(RuntimeFractionalPercent(default_value=fraction(mirror.percentage)))
            shadow.disable_shadow_host_suffix_append = True  # the mirror gets the request with its original authority
            shadow.trace_sampled.value = False
    for entry in destinations:
        _hash_by(action, view, entry.destination, port)


def replace_prefix(action: RouteAction | RedirectAction, new: str, match: RouteMatch) -> None:
    """Make an action replace the path prefix that `match` matches with `new`, so that exactly one slash precedes the
    rest of the path."""
    matched, kept = match.path_separated_prefix, new.rstrip("/")
    if not matched:
        if kept:
            action.prefix_rewrite = f"{kept}/"  # the matched prefix is "/", so its slash is replaced too
    elif kept:
        action.prefix_rewrite = kept
    else:
        action.regex_rewrite.pattern.regex = f"^{re.escape(matched)}/?"
        action.regex_rewrite.substitution = "/"


def _hash_by(action: RouteAction, view: ServiceView, destination: Destination, port: int) -> None:
    target = view.target(destination.host)
    rule = view.rule if destination.host == view.host else (target.rule if target else None)
    if rule is None:
        return
    subset = next((entry for entry in rule.subsets if entry.name == destination.subset), None)
    balancer = policy.effective(rule, destination_port(view, destination, port), subset).load_balancer
    if balancer is not None and balancer.consistent_hash is not None:
        wanted = _hash_policy(balancer.consistent_hash)
        if wanted not in action.hash_policy:
            action.hash_policy.append(wanted)


def _hash_policy(hashing: ConsistentHash) -> RouteAction.HashPolicy:
    result = RouteAction.HashPolicy()
    match hashing.key:
        case HashKey.HEADER:
            result.header.header_name = hashing.name
        case HashKey.COOKIE:
            result.cookie.name = hashing.name
            result.cookie.path = hashing.cookie_path
            if hashing.cookie_ttl is not None:
                result.cookie.ttl.CopyFrom(duration(hashing.cookie_ttl))
            for name, value in hashing.cookie_attributes:
                result.cookie.attributes.add(name=name, value=value)
        case HashKey.SOURCE_IP:
            result.connection_properties.source_ip = True
        case HashKey.QUERY:
            result.query_parameter.name = hashing.name
    return result


def _redirect(redirect: Redirect, port: int, match: RouteMatch, *, encrypted: bool) -> RedirectAction:
    result = RedirectAction(response_code=_CODES.get(redirect.code, RedirectAction.MOVED_PERMANENTLY))
    if redirect.uri:
        result.path_redirect = redirect.uri
    elif redirect.prefix:
        replace_prefix(result, redirect.prefix, match)
    if redirect.authority:
        result.host_redirect = redirect.authority
    if redirect.scheme:
        result.scheme_redirect = redirect.scheme
    if redirect.port:
        result.port_redirect = redirect.port
    elif (
        redirect.derive_port == "FROM_REQUEST_PORT"
        and port != _USUAL[redirect.scheme or ("https" if encrypted else "http")]
    ):
        result.port_redirect = port  # a route belongs to one port, so this is the request's port
    elif redirect.derive_port == "FROM_PROTOCOL_DEFAULT" and redirect.scheme and port not in _USUAL.values():
        result.port_redirect = _USUAL[redirect.scheme]  # without it, Envoy would keep the request's port
    return result


def _answer(written: DirectResponse) -> DirectResponseAction:
    result = DirectResponseAction(status=written.status)
    if written.body:
        result.body.inline_string = written.body
    elif written.body_bytes:
        result.body.inline_bytes = written.body_bytes
    return result


def _additions(changes: HeaderChanges) -> list[HeaderValueOption]:
    return [
        *(
            _addition(name, value, HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD)
            for name, value in changes.set
            if name.lower() not in _AUTHORITY
        ),
        *(
            _addition(name, value, HeaderValueOption.APPEND_IF_EXISTS_OR_ADD)
            for name, value in changes.add
            if name.lower() not in _AUTHORITY
        ),
    ]


def _addition(name: str, value: str, action: HeaderValueOption.HeaderAppendAction) -> HeaderValueOption:
    result = HeaderValueOption(append_action=action)
    result.header.key, result.header.value = name, harmless(value)
    return result


def _authority(headers: Headers) -> str:
    """Return the value that the configured header changes give to the Host header of requests; "" if they do not change
    it. The caller sets this value as a rewrite of the authority. If several changes name the Host header, the first one
    counts."""
    changes = (*headers.request.set, *headers.request.add)
    return next((value for name, value in changes if name.lower() in _AUTHORITY), "")
