"""Evaluates an HTTP connection manager, inbound or outbound: normalizes path and headers, matches a route, runs the
HTTP filters in order. Returns the cluster to which the router forwards the request, or the verdict if a filter or
route responds itself."""

from __future__ import annotations

import re

import msgspec
from envoy.config.route.v3.route_components_pb2 import RedirectAction, Route, RouteAction, VirtualHost, WeightedCluster
from envoy.config.route.v3.route_pb2 import RouteConfiguration
from envoy.extensions.filters.http.cors.v3.cors_pb2 import CorsPolicy
from envoy.extensions.filters.http.ext_authz.v3.ext_authz_pb2 import ExtAuthz
from envoy.extensions.filters.http.fault.v3.fault_pb2 import HTTPFault
from envoy.extensions.filters.http.header_mutation.v3.header_mutation_pb2 import HeaderMutation
from envoy.extensions.filters.http.jwt_authn.v3.config_pb2 import JwtAuthentication
from envoy.extensions.filters.http.rbac.v3.rbac_pb2 import RBAC
from envoy.extensions.filters.network.http_connection_manager.v3.http_connection_manager_pb2 import (
    HttpConnectionManager,
    HttpFilter,
)
from google.protobuf.duration_pb2 import Duration

from weft.explain import fault, jwt, matchers, rbac
from weft.explain.action import REDIRECTS, change_headers, location, rewrite
from weft.explain.cluster import by_weight
from weft.explain.codec import leave_of_te, unreadable, upgrade_of
from weft.explain.decision import DecisionStage, Kind, ObjectSource, Unsure, Verdict, sources_of
from weft.explain.listener import is_address
from weft.explain.path import normalized
from weft.explain.request import Request, RequestHeaders
from weft.explain.route import first_match, is_grpc, virtual_host
from weft.explain.rule import GuardInput
from weft.explain.walk import Walk
from weft.explain.world import EnvoyResources
from weft.model.proxy import UPGRADE_FILTER, UPGRADE_METHOD

_HOP_BY_HOP = ("connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade")
_NOBODY = "nobody"  # name of a gateway's catch-all virtual host for hosts that it does not serve, and of its route
_BLOCKED = "block_all"  # name of the virtual host for unknown hosts at a sidecar with REGISTRY_ONLY
_MOST_HOSTS = 8  # served hosts that a message lists
_ROUTER = "envoy.filters.http.router"
# Filters that add no step: they only set metadata for the access log.
_SILENT = ("envoy.filters.http.header_to_metadata",)
_GRPC_WEB = "envoy.filters.http.grpc_web"
_WEB_TYPES = tuple(f"application/grpc-web{text}{proto}" for text in ("", "-text") for proto in ("", "+proto"))
# The header `grpc-timeout`: a number and its unit. `_UNITS` are in milliseconds.
_DEADLINE = re.compile(r"(\d{1,8})([HMSmun])")
_UNITS = {"m": 1, "S": 1_000, "M": 60_000, "H": 3_600_000}
_MOST_UNITS = 99_999_999


class ForwardedRequest(msgspec.Struct, frozen=True):
    cluster: str
    route: Route


def manage(
    walk: Walk, resources: EnvoyResources, manager: HttpConnectionManager, request: Request, seen: GuardInput
) -> ForwardedRequest | Verdict:
    """Runs the request through the connection manager. Returns the cluster to which the request is forwarded, and the
    route; or the verdict, if the proxy responds itself. `seen`: the request as the proxy's filters see it; its headers
    are changed here in the same way as by the proxy."""
    walk.grpc = is_grpc(seen.headers)
    if (refusal := _tidy(walk, manager, seen)) is not None:
        return refusal
    name = manager.rds.route_config_name
    if manager.HasField("rds"):
        configuration = resources.routes.get(name)
        if configuration is None:
            raise Unsure(f"the proxy waits for the route configuration {name}")
    else:
        configuration = manager.route_config
    route = _route(walk, resources, configuration, seen)
    if route is not None and (refusal := _upgrade(walk, manager, seen)) is not None:
        return refusal
    for each in _filters(manager, upgrade_of(seen.headers)):
        answer = _filter(walk, resources, each, route, request, seen)
        if answer is not None:
            return answer
        if _chooses_again(resources, each, seen):
            route = _rerouted(walk, resources, configuration, route, seen)
    if route is None:
        return walk.end(Kind.ANSWERED, "no route matches", status=404, flags="NR", detail="route_not_found")
    return _act(walk, resources, route, seen)


def _tidy(walk: Walk, manager: HttpConnectionManager, seen: GuardInput) -> Verdict | None:
    headers = seen.headers
    written = headers.value(":path")
    if (refusal := unreadable(walk, manager, seen)) is not None:
        return refusal
    if not headers.has(":authority"):
        return _turned_away(walk, "the request names no host", 400, "missing_host_header")
    if not written.startswith("/"):  # as in `OPTIONS *`
        return _turned_away(
            walk, f"the path {written} is for a whole server, not for a service", 404, "absolute_path_rejected"
        )
    if headers.value(":method") == "QUERY" and not headers.value("content-type"):
        return _turned_away(walk, "a QUERY request needs a Content-Type", 400, "query_missing_content_type")
    target = normalized(manager, written)
    if target is None:
        walk.tell(DecisionStage.ROUTE, "the path is rejected")
        return walk.end(Kind.ANSWERED, "the path is rejected", status=400, detail="path_normalization_failed")
    if target != written:
        walk.tell(DecisionStage.ROUTE, f"the path is normalized to {target}")
        headers.set(":path", target)
    # Envoy ignores a request to upgrade to HTTP/2.
    kept = ("connection", "upgrade") if upgrade_of(headers) not in ("", "h2c") else ()
    for name in _HOP_BY_HOP:
        if name not in kept:
            headers.remove(name)
    if not kept:
        leave_of_te(headers)
    given = headers.values("x-forwarded-proto")
    spoken = ",".join(filter(None, given)) if given else "https" if seen.identities else "http"
    headers.set("x-forwarded-proto", spoken)
    if spoken.lower() in ("http", "https"):
        headers.set(":scheme", spoken.lower())
    headers.make_up("x-request-id")
    if manager.forward_client_cert_details == HttpConnectionManager.APPEND_FORWARD and seen.identities:
        headers.remove("x-forwarded-client-cert")
        headers.make_up("x-forwarded-client-cert")
    else:
        headers.remove("x-forwarded-client-cert")
    if manager.use_remote_address.value:  # at the edge: forwarded headers are not trusted
        before = headers.joined("x-forwarded-for")
        source = seen.connection.source
        if manager.xff_num_trusted_hops and before:
            listed = [each.strip() for each in before.split(",")]
            nearest = listed[-manager.xff_num_trusted_hops] if len(listed) >= manager.xff_num_trusted_hops else source
            headers.set("x-forwarded-for", f"{before},{source}")
            seen.remote = nearest if is_address(nearest) else source
            return None
        if before and not manager.xff_num_trusted_hops:
            what = f"x-forwarded-for is not trusted, so the client address is {source}"
            walk.tell(DecisionStage.ROUTE, f"{what}: numTrustedProxies of the mesh settings is 0")
        headers.set("x-forwarded-for", f"{before},{source}" if before else source)
    forwarded = (headers.joined("x-forwarded-for") or "").rpartition(",")[2].strip()
    seen.remote = forwarded if is_address(forwarded) else seen.connection.source
    return None


def _turned_away(walk: Walk, why: str, status: int, detail: str) -> Verdict:
    walk.tell(DecisionStage.ROUTE, why)
    return walk.end(Kind.ANSWERED, why, status=status, detail=detail)


def _filters(manager: HttpConnectionManager, upgrade: str) -> tuple[HttpFilter, ...]:
    """The HTTP filters that the connection manager runs for a request. `upgrade`: the protocol to which the request
    asks to upgrade, "" for none; such a request may have a list of filters of its own."""
    for each in manager.upgrade_configs:
        if each.filters and each.upgrade_type.lower() == upgrade:
            return tuple(each.filters)
    return tuple(manager.http_filters)


def _upgrade(walk: Walk, manager: HttpConnectionManager, seen: GuardInput) -> Verdict | None:
    """Returns the verdict 403 if the request (`seen`) asks for an upgrade (such as `websocket`) that the connection
    manager does not list; else None."""
    wanted = upgrade_of(seen.headers)
    if not wanted or any(each.upgrade_type.lower() == wanted for each in manager.upgrade_configs):
        return None
    walk.tell(DecisionStage.ROUTE, f"the request asks for an upgrade to {wanted}, which the proxy does not support")
    return walk.end(Kind.ANSWERED, f"an upgrade to {wanted} is not supported", status=403, detail="upgrade_failed")


def _route(walk: Walk, resources: EnvoyResources, configuration: RouteConfiguration, seen: GuardInput) -> Route | None:
    authority = seen.headers.value(":authority")
    host = virtual_host(resources, configuration, authority)
    if host is None:
        walk.tell(DecisionStage.ROUTE, f"no virtual host of {configuration.name} matches {authority}")
        return None
    sources = sources_of(host.metadata)
    nobody = host.name == _NOBODY and not sources
    if not sources and not nobody and len(configuration.virtual_hosts) == 1:
        pass  # a workload's own inbound route configuration has only one virtual host
    else:
        what = f"{authority} matches the virtual host {host.name} of {configuration.name}"
        if nobody:
            what = f"{configuration.name} has no host {authority}{_hosts(configuration)}"
        walk.tell(DecisionStage.ROUTE, what, sources, about=host.name)
    if host.require_tls == VirtualHost.ALL and seen.headers.value(":scheme") == "http":
        walk.tell(DecisionStage.ROUTE, "the host accepts only HTTPS", sources)
        return Route(redirect=RedirectAction(https_redirect=True))
    if not seen.headers.value("x-forwarded-proto"):
        walk.tell(
            DecisionStage.ROUTE,
            "x-forwarded-proto is empty, and without a scheme no route matches",
            sources,
        )
        return None
    route = first_match(host, seen.headers, seen.metadata)
    if route is None:
        walk.tell(
            DecisionStage.ROUTE,
            f"none of the {len(host.routes)} routes of {host.name} matches {seen.headers.value(':path')}",
            sources,
        )
        return None
    walk.route = route.name
    if nobody:
        return route  # the step that names the virtual host has reported the unknown host
    walk.tell(
        DecisionStage.ROUTE,
        f"the route {route.name or '(unnamed)'} matches: {_matched(route)}",
        sources_of(route.metadata),
    )
    return route


def _chooses_again(resources: EnvoyResources, each: HttpFilter, seen: GuardInput) -> bool:
    """Whether the filter `each` is a JWT filter after which Envoy chooses the route again, because routes may match the
    claims of a token, and a token was accepted."""
    check = resources.opened(each.typed_config, JwtAuthentication) if jwt.FILTER in seen.metadata else None
    return check is not None and any(provider.clear_route_cache for provider in check.providers.values())


def _rerouted(
    walk: Walk, resources: EnvoyResources, configuration: RouteConfiguration, before: Route | None, seen: GuardInput
) -> Route | None:
    host = virtual_host(resources, configuration, seen.headers.value(":authority"))
    if host is None or (before is not None and before not in host.routes):
        return before
    route = first_match(host, seen.headers, seen.metadata)
    if route == before:
        return route
    walk.route = route.name if route is not None else ""
    what = (
        f"the route {route.name or '(unnamed)'} matches: {_matched(route)}" if route is not None else "no route matches"
    )
    why = f"chosen again with the claims of the token: {what}"
    walk.tell(DecisionStage.ROUTE, why, sources_of(route.metadata) if route else ())
    return route


def _hosts(configuration: RouteConfiguration) -> str:
    named = (each.domains[0] for each in configuration.virtual_hosts if each.name != _NOBODY and each.domains)
    known = list(dict.fromkeys(named))
    more = f" and {len(known) - _MOST_HOSTS} more" if len(known) > _MOST_HOSTS else ""
    return f" (it has {', '.join(known[:_MOST_HOSTS])}{more})" if known else " (it has none)"


def _matched(route: Route) -> str:
    match = route.match
    kind = match.WhichOneof("path_specifier") or ""
    if kind == "connect_matcher":
        return "CONNECT"
    path = match.safe_regex.regex if kind == "safe_regex" else getattr(match, kind, "")
    parts = [f"{kind.replace('safe_', '').replace('_', ' ')} {path}"]
    if match.headers:
        parts.append(f"headers {', '.join(each.name for each in match.headers)}")
    if match.dynamic_metadata:
        claims = (".".join(part.key for part in each.path if part.key != "payload") for each in match.dynamic_metadata)
        parts.append(f"claims {', '.join(claims)}")
    if match.query_parameters:
        parts.append(f"parameters {', '.join(each.name for each in match.query_parameters)}")
    return "; ".join(parts)


def _filter(
    walk: Walk, resources: EnvoyResources, each: HttpFilter, route: Route | None, request: Request, seen: GuardInput
) -> Verdict | None:
    """The verdict of one HTTP filter (`each`) that stops the request; None if the request continues to the next filter.
    `route`: None if no route matches. `seen`: the request as filters see it."""
    own = route.typed_per_filter_config[each.name] if route and each.name in route.typed_per_filter_config else None
    if each.disabled and own is None:
        return None
    config = own if own is not None else each.typed_config
    sources = sources_of(route.metadata) if route else ()
    if each.name == UPGRADE_FILTER:
        _keep_method(seen.headers, restore=each.disabled)
        return None
    if each.name == _GRPC_WEB:
        _translate(walk, seen, sources)
        return None
    if (injected := resources.opened(config, HTTPFault)) is not None:
        return fault.inject(walk, injected, sources)
    if (shared := resources.opened(config, CorsPolicy)) is not None:
        if route is None or not route.HasField("route"):
            return None  # a route without a cluster responds to preflights itself
        return fault.preflight(walk, shared, seen.headers, sources)
    if (rules := resources.opened(config, RBAC)) is not None:
        why = rbac.denied(walk, rules, seen)
        return walk.end(Kind.DENIED, "a policy denies the request", status=403, detail=why) if why else None
    if (check := resources.opened(config, JwtAuthentication)) is not None:
        refusal = jwt.refused(walk, check, request, seen)
        if refusal is None:
            return None
        return walk.end(Kind.DENIED, refusal.why, status=refusal.status, detail=refusal.detail)
    if (ext_authz := resources.opened(config, ExtAuthz)) is not None:
        _call_authorizer(walk, ext_authz, seen)
        return None
    if (mutation := resources.opened(config, HeaderMutation)) is not None:
        _mutate(mutation, seen)
    elif each.name != _ROUTER and each.name not in _SILENT:
        walk.tell(
            DecisionStage.FILTER, f"the filter {each.name} is not simulated; it is assumed to let the request pass"
        )
    return None


def _keep_method(headers: RequestHeaders, *, restore: bool) -> None:
    """Changes the headers of an upgrade (such as to WebSocket) as the proxies do: the sending proxy puts the method
    into a header, the receiving proxy (`restore`) removes that header."""
    if restore:
        headers.remove(UPGRADE_METHOD)
    else:
        headers.set(UPGRADE_METHOD, headers.value(":method"))


def _translate(walk: Walk, seen: GuardInput, sources: tuple[ObjectSource, ...]) -> None:
    if seen.headers.joined("content-type") not in _WEB_TYPES:
        return
    walk.tell(DecisionStage.FILTER, "gRPC-Web becomes gRPC", sources)
    walk.web = seen.headers.value(":method") != "HEAD"
    seen.headers.set("content-type", "application/grpc")
    for name, value in (("te", "trailers"), ("grpc-accept-encoding", "identity")):
        seen.headers.set(name, value)
    seen.headers.remove("content-length")


def _call_authorizer(walk: Walk, config: ExtAuthz, seen: GuardInput) -> None:
    if config.HasField("filter_enabled_metadata") and not matchers.metadata(
        config.filter_enabled_metadata, seen.metadata
    ):
        return
    cluster = config.grpc_service.envoy_grpc.cluster_name or config.http_service.server_uri.cluster
    walk.tell(DecisionStage.POLICY, f"calls the external authorizer {cluster}")
    raise Unsure(f"the external authorizer {cluster} decides")


def _mutate(mutation: HeaderMutation, seen: GuardInput) -> None:
    for each in mutation.mutations.request_mutations:
        match each.WhichOneof("action"):
            case "remove":
                seen.headers.remove(each.remove)
            case "remove_on_match":
                for name in {name for name, _ in seen.headers if not name.startswith(":")}:
                    if matchers.text(each.remove_on_match.key_matcher, name):
                        seen.headers.remove(name)
            case kind:
                raise Unsure(f"headers are changed by {kind}, which is not simulated")


def _act(walk: Walk, resources: EnvoyResources, route: Route, seen: GuardInput) -> ForwardedRequest | Verdict:
    headers, sources = seen.headers, sources_of(route.metadata)
    if route.HasField("redirect"):
        status, where = REDIRECTS[route.redirect.response_code], location(route.redirect, headers, route.match)
        walk.tell(DecisionStage.ROUTE, f"the request is redirected to {where}", sources)
        return walk.end(
            Kind.ANSWERED, f"redirected to {where}", status=status, location=where, detail="direct_response"
        )
    if route.HasField("direct_response"):
        status = route.direct_response.status
        if route.name == _NOBODY and not sources:
            why = next(step.what for step in reversed(walk.steps) if step.stage is DecisionStage.ROUTE)
            return walk.end(Kind.ANSWERED, why, status=status, detail="direct_response")
        if route.name == _BLOCKED and not sources:
            authority = headers.value(":authority")
            why = (
                f"no service visible to the caller has the host {authority}, and the caller's outbound policy "
                "REGISTRY_ONLY allows no other hosts"
            )
            walk.tell(DecisionStage.ROUTE, why, sources)
            return walk.end(Kind.ANSWERED, why, status=status, detail="direct_response")
        walk.tell(DecisionStage.ROUTE, f"the route sends a direct response with status {status}", sources)
        # A response with one of these statuses has a Location, which Envoy sets to the URL of the request.
        where = location(RedirectAction(), headers, route.match) if status == 201 or 300 <= status < 400 else ""
        return walk.end(
            Kind.ANSWERED, "the route sends a direct response", status=status, location=where, detail="direct_response"
        )
    action = route.route
    cluster = _cluster(walk, route, seen)
    if action.cluster_not_found_response_code == action.INTERNAL_SERVER_ERROR and cluster not in resources.clusters:
        why = "the route has no valid backend"
        walk.tell(DecisionStage.CLUSTER, why, sources)
        return walk.end(Kind.FAILED, why, status=500, flags="NC", detail="cluster_not_found")
    before = (headers.value(":authority"), headers.value(":path"))
    if changes := _header_changes(route):
        walk.tell(DecisionStage.ROUTE, changes, sources)
    change_headers(route, headers)
    rewrite(route, headers)
    after = (headers.value(":authority"), headers.value(":path"))
    if before != after:
        walk.tell(DecisionStage.ROUTE, f"the request is rewritten to {after[0]}{after[1]}", sources)
    if action.HasField("max_grpc_timeout") and is_grpc(headers):
        _set_deadline(headers, action)
    if limits := _patience(action):
        walk.tell(DecisionStage.ROUTE, limits, sources)
    for mirror in action.request_mirror_policies:
        often = fault.share(mirror.runtime_fraction.default_value) if mirror.HasField("runtime_fraction") else "100 %"
        copied = "the request is" if often == "100 %" else f"{often} of requests are"
        walk.tell(DecisionStage.ROUTE, f"{copied} mirrored to {mirror.cluster}", sources)
    return ForwardedRequest(cluster, route)


def _cluster(walk: Walk, route: Route, seen: GuardInput) -> str:
    action = route.route
    kind = action.WhichOneof("cluster_specifier")
    if kind == "cluster":
        return str(action.cluster)
    if kind != "weighted_clusters":
        raise Unsure(f"the cluster is chosen by {kind}, which cannot be predicted")
    parts = action.weighted_clusters.clusters
    total = sum(part.weight.value for part in parts)
    chosen, weight = by_weight(walk, parts, lambda part: part.weight.value)
    changed = _header_changes(chosen)
    what = f"by weight {weight} of {total} the request goes to {chosen.name}{f'; {changed}' if changed else ''}"
    walk.tell(DecisionStage.ROUTE, what, sources_of(route.metadata))
    change_headers(chosen, seen.headers)
    if chosen.host_rewrite_literal:
        seen.headers.set(":authority", chosen.host_rewrite_literal)
    return str(chosen.name)


def _header_changes(message: Route | WeightedCluster.ClusterWeight) -> str:
    """The names of the headers that the route or weighted cluster sets and removes, as text. Values are left out,
    because they may be long or secret."""
    changes = []
    for whose, added, removed in (
        ("request", message.request_headers_to_add, message.request_headers_to_remove),
        ("response", message.response_headers_to_add, message.response_headers_to_remove),
    ):
        words = [f"sets {', '.join(dict.fromkeys(each.header.key.lower() for each in added))}"] if added else []
        words += [f"removes {', '.join(removed)}"] if removed else []
        changes += [f"{whose} headers: {' and '.join(words)}"] if words else []
    return "; ".join(changes)


def _set_deadline(headers: RequestHeaders, action: RouteAction) -> None:
    """Sets `grpc-timeout` to the deadline of one try: the caller's deadline or the route's, whichever is shorter."""
    limit, single = _milliseconds(action.max_grpc_timeout), _milliseconds(action.retry_policy.per_try_timeout)
    given = _DEADLINE.fullmatch(headers.value("grpc-timeout"))
    if given is not None and given[2] in "un":
        headers.remove("grpc-timeout")
        headers.make_up("grpc-timeout")
        return
    whole = int(given[1]) * _UNITS[given[2]] if given is not None else 0
    if limit and (not whole or whole > limit):
        whole = limit
    left = min(single, whole) if single and whole else single or whole
    if left:
        unit = next((unit for unit, size in _UNITS.items() if left // size <= _MOST_UNITS), "H")
        headers.set("grpc-timeout", f"{min(left // _UNITS[unit], _MOST_UNITS)}{unit}")


def _patience(action: RouteAction) -> str:
    parts = []
    if action.HasField("timeout") and (seconds := _seconds(action.timeout)):
        parts.append(f"timeout {seconds:g} s, then 504")
    if action.HasField("retry_policy"):
        policy = action.retry_policy
        tries = policy.num_retries.value if policy.HasField("num_retries") else 1
        limit = f", {_seconds(policy.per_try_timeout):g} s per try" if policy.HasField("per_try_timeout") else ""
        parts.append(f"retried up to {tries} times on {policy.retry_on}{limit}")
    return "; ".join(parts)


def _milliseconds(duration: Duration) -> int:
    return round(_seconds(duration) * 1000)


def _seconds(duration: Duration) -> float:
    return duration.ToTimedelta().total_seconds()
