"""A request in a connection manager, on either side: its path and headers are tidied, a route takes it, filters look at
it in their order, and the last of them sends it to a cluster or answers it."""

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

_HOP_BY_HOP = ("connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade")
_NOBODY = "nobody"  # a gateway's virtual host for all that it does not serve, and its route
_BLOCKED = "block_all"  # a sidecar's for all that it does not know, and its route, where that may not be called
_MOST_HOSTS = 8  # of which it is told that they are served
_ROUTER = "envoy.filters.http.router"
_SILENT = ("envoy.filters.http.header_to_metadata",)  # only marks for the log
_GRPC_WEB = "envoy.filters.http.grpc_web"
_WEB_TYPES = tuple(f"application/grpc-web{text}{proto}" for text in ("", "-text") for proto in ("", "+proto"))
# gRPC's deadlines, in milliseconds.
_DEADLINE = re.compile(r"(\d{1,8})([HMSmun])")
_UNITS = {"m": 1, "S": 1_000, "M": 60_000, "H": 3_600_000}
_MOST_UNITS = 99_999_999


class ForwardedRequest(msgspec.Struct, frozen=True):
    cluster: str
    route: Route


def manage(
    walk: Walk, resources: EnvoyResources, manager: HttpConnectionManager, request: Request, seen: GuardInput
) -> ForwardedRequest | Verdict:
    """Changes the headers of what is seen, as the proxy does."""
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
    found = _route(walk, resources, configuration, seen)
    if found is not None and (refusal := _upgrade(walk, manager, seen)) is not None:
        return refusal
    for each in manager.http_filters:
        answer = _filter(walk, resources, each, found, request, seen)
        if answer is not None:
            return answer
    if found is None:
        return walk.end(Kind.ANSWERED, "no route takes it", status=404, flags="NR", detail="route_not_found")
    return _act(walk, resources, found, seen)


def _tidy(walk: Walk, manager: HttpConnectionManager, seen: GuardInput) -> Verdict | None:
    headers = seen.headers
    written = headers.value(":path")
    if (refusal := unreadable(walk, manager, seen)) is not None:
        return refusal
    if not headers.has(":authority"):
        return _turned_away(walk, "it names no host", 400, "missing_host_header")
    if not written.startswith("/"):  # `OPTIONS *`
        return _turned_away(
            walk, f"{written} is asked of a whole server, and of no service", 404, "absolute_path_rejected"
        )
    if headers.value(":method") == "QUERY" and not headers.value("content-type"):
        return _turned_away(walk, "a QUERY says by Content-Type what it asks", 400, "query_missing_content_type")
    target = normalized(manager, written)
    if target is None:
        walk.tell(DecisionStage.ROUTE, "its path is refused")
        return walk.end(Kind.ANSWERED, "its path is refused", status=400, detail="path_normalization_failed")
    if target != written:
        walk.tell(DecisionStage.ROUTE, f"its path becomes {target}")
        headers.set(":path", target)
    # HTTP/2 is not upgraded to: such a wish is passed over.
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
    if manager.use_remote_address.value:  # at the edge nobody is believed
        before = headers.joined("x-forwarded-for")
        source = seen.connection.source
        if manager.xff_num_trusted_hops and before:
            listed = [each.strip() for each in before.split(",")]
            nearest = listed[-manager.xff_num_trusted_hops] if len(listed) >= manager.xff_num_trusted_hops else source
            headers.set("x-forwarded-for", f"{before},{source}")
            seen.remote = nearest if is_address(nearest) else source
            return None
        if before and not manager.xff_num_trusted_hops:
            said = f"x-forwarded-for is not believed, and the caller is {source}"
            walk.tell(DecisionStage.ROUTE, f"{said}: numTrustedProxies of the mesh's settings is 0")
        headers.set("x-forwarded-for", f"{before},{source}" if before else source)
    forwarded = (headers.joined("x-forwarded-for") or "").rpartition(",")[2].strip()
    seen.remote = forwarded if is_address(forwarded) else seen.connection.source
    return None


def _turned_away(walk: Walk, why: str, status: int, detail: str) -> Verdict:
    walk.tell(DecisionStage.ROUTE, why)
    return walk.end(Kind.ANSWERED, why, status=status, detail=detail)


def _upgrade(walk: Walk, manager: HttpConnectionManager, seen: GuardInput) -> Verdict | None:
    """To another protocol on the same connection; which ones, a proxy knows by name."""
    wanted = upgrade_of(seen.headers)
    if not wanted or any(each.upgrade_type.lower() == wanted for each in manager.upgrade_configs):
        return None
    walk.tell(DecisionStage.ROUTE, f"it asks for an upgrade to {wanted}, which the proxy does not know")
    return walk.end(Kind.ANSWERED, f"no upgrade to {wanted}", status=403, detail="upgrade_failed")


def _route(walk: Walk, resources: EnvoyResources, configuration: RouteConfiguration, seen: GuardInput) -> Route | None:
    authority = seen.headers.value(":authority")
    host = virtual_host(resources, configuration, authority)
    if host is None:
        walk.tell(DecisionStage.ROUTE, f"no virtual host of {configuration.name} is called {authority}")
        return None
    sources = sources_of(host.metadata)
    nobody = host.name == _NOBODY and not sources
    if not sources and not nobody and len(configuration.virtual_hosts) == 1:
        pass  # a workload's own has but one way
    else:
        told = f"{authority} is the virtual host {host.name} of {configuration.name}"
        if nobody:
            told = f"{configuration.name} has no host {authority}{_hosts(configuration)}"
        walk.tell(DecisionStage.ROUTE, told, sources, about=host.name)
    if host.require_tls == VirtualHost.ALL and seen.headers.value(":scheme") == "http":
        walk.tell(DecisionStage.ROUTE, "it is for HTTPS alone", sources)
        return Route(redirect=RedirectAction(https_redirect=True))
    if not seen.headers.value("x-forwarded-proto"):
        walk.tell(
            DecisionStage.ROUTE,
            "x-forwarded-proto is empty, and no route takes what nobody knows the scheme of",
            sources,
        )
        return None
    found = first_match(host, seen.headers)
    if found is None:
        walk.tell(
            DecisionStage.ROUTE, f"none of its {len(host.routes)} routes takes {seen.headers.value(':path')}", sources
        )
        return None
    walk.route = found.name
    if nobody:
        return found  # what it has not has been said
    walk.tell(
        DecisionStage.ROUTE,
        f"the route {found.name or '(unnamed)'} takes it: {_matched(found)}",
        sources_of(found.metadata),
    )
    return found


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
    if match.query_parameters:
        parts.append(f"parameters {', '.join(each.name for each in match.query_parameters)}")
    return "; ".join(parts)


def _filter(
    walk: Walk, resources: EnvoyResources, each: HttpFilter, route: Route | None, request: Request, seen: GuardInput
) -> Verdict | None:
    """What one filter says; None if the request goes on."""
    own = route.typed_per_filter_config[each.name] if route and each.name in route.typed_per_filter_config else None
    if each.disabled and own is None:
        return None
    config = own if own is not None else each.typed_config
    sources = sources_of(route.metadata) if route else ()
    if each.name == _GRPC_WEB:
        _translate(walk, seen, sources)
        return None
    if (injected := resources.opened(config, HTTPFault)) is not None:
        return fault.inject(walk, injected, sources)
    if (shared := resources.opened(config, CorsPolicy)) is not None:
        if route is None or not route.HasField("route"):
            return None  # a route that answers itself answers preflights, too
        return fault.preflight(walk, shared, seen.headers, sources)
    if (rules := resources.opened(config, RBAC)) is not None:
        why = rbac.denied(walk, rules, seen)
        return walk.end(Kind.DENIED, "a policy denies it", status=403, detail=why) if why else None
    if (check := resources.opened(config, JwtAuthentication)) is not None:
        refusal = jwt.refused(walk, check, request, seen)
        if refusal is None:
            return None
        return walk.end(Kind.DENIED, refusal.why, status=refusal.status, detail=refusal.detail)
    if (asked := resources.opened(config, ExtAuthz)) is not None:
        _ask(walk, asked, seen)
        return None
    if (mutation := resources.opened(config, HeaderMutation)) is not None:
        _mutate(mutation, seen)
    elif each.name != _ROUTER and each.name not in _SILENT:
        walk.tell(
            DecisionStage.FILTER, f"the filter {each.name} is not known here; it is taken to let the request pass"
        )
    return None


def _translate(walk: Walk, seen: GuardInput, sources: tuple[ObjectSource, ...]) -> None:
    if seen.headers.joined("content-type") not in _WEB_TYPES:
        return
    walk.tell(DecisionStage.FILTER, "gRPC-Web becomes gRPC", sources)
    walk.web = seen.headers.value(":method") != "HEAD"
    seen.headers.set("content-type", "application/grpc")
    for name, value in (("te", "trailers"), ("grpc-accept-encoding", "identity")):
        seen.headers.set(name, value)
    seen.headers.remove("content-length")


def _ask(walk: Walk, config: ExtAuthz, seen: GuardInput) -> None:
    if config.HasField("filter_enabled_metadata") and not matchers.metadata(
        config.filter_enabled_metadata, seen.metadata
    ):
        return
    cluster = config.grpc_service.envoy_grpc.cluster_name or config.http_service.server_uri.cluster
    walk.tell(DecisionStage.POLICY, f"asks the authorizer {cluster}")
    raise Unsure(f"the authorizer {cluster} decides")


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
                raise Unsure(f"headers are changed by {kind}, which cannot be tried here")


def _act(walk: Walk, resources: EnvoyResources, route: Route, seen: GuardInput) -> ForwardedRequest | Verdict:
    headers, sources = seen.headers, sources_of(route.metadata)
    if route.HasField("redirect"):
        status, where = REDIRECTS[route.redirect.response_code], location(route.redirect, headers, route.match)
        walk.tell(DecisionStage.ROUTE, f"it is redirected to {where}", sources)
        return walk.end(
            Kind.ANSWERED, f"redirected to {where}", status=status, location=where, detail="direct_response"
        )
    if route.HasField("direct_response"):
        status = route.direct_response.status
        if route.name == _NOBODY and not sources:
            why = next(step.what for step in reversed(walk.steps) if step.stage is DecisionStage.ROUTE)
            return walk.end(Kind.ANSWERED, why, status=status, detail="direct_response")
        if route.name == _BLOCKED and not sources:
            why = (
                f"nobody whom it sees is called {headers.value(':authority')}, and it may call no others: REGISTRY_ONLY"
            )
            walk.tell(DecisionStage.ROUTE, why, sources)
            return walk.end(Kind.ANSWERED, why, status=status, detail="direct_response")
        walk.tell(DecisionStage.ROUTE, f"the route itself answers {status}", sources)
        # With these, HTTP says where something is, and Envoy says: here.
        where = location(RedirectAction(), headers, route.match) if status == 201 or 300 <= status < 400 else ""
        return walk.end(
            Kind.ANSWERED, "the route answers itself", status=status, location=where, detail="direct_response"
        )
    action = route.route
    cluster = _cluster(walk, route, seen)
    if action.cluster_not_found_response_code == action.INTERNAL_SERVER_ERROR and cluster not in resources.clusters:
        why = "it is sent to nobody who can be called"
        walk.tell(DecisionStage.CLUSTER, why, sources)
        return walk.end(Kind.FAILED, why, status=500, flags="NC", detail="cluster_not_found")
    before = (headers.value(":authority"), headers.value(":path"))
    if told := _header_changes(route):
        walk.tell(DecisionStage.ROUTE, told, sources)
    change_headers(route, headers)
    rewrite(route, headers)
    after = (headers.value(":authority"), headers.value(":path"))
    if before != after:
        walk.tell(DecisionStage.ROUTE, f"it is rewritten to {after[0]}{after[1]}", sources)
    if action.HasField("max_grpc_timeout") and is_grpc(headers):
        _tell_deadline(headers, action)
    if told := _patience(action):
        walk.tell(DecisionStage.ROUTE, told, sources)
    for mirror in action.request_mirror_policies:
        often = fault.share(mirror.runtime_fraction.default_value) if mirror.HasField("runtime_fraction") else "100 %"
        told = "a copy" if often == "100 %" else f"of {often} a copy"
        walk.tell(DecisionStage.ROUTE, f"{told} goes to {mirror.cluster}", sources)
    return ForwardedRequest(cluster, route)


def _cluster(walk: Walk, route: Route, seen: GuardInput) -> str:
    action = route.route
    kind = action.WhichOneof("cluster_specifier")
    if kind == "cluster":
        return str(action.cluster)
    if kind != "weighted_clusters":
        raise Unsure(f"the cluster is chosen by {kind}, which cannot be told beforehand")
    parts = action.weighted_clusters.clusters
    total = sum(part.weight.value for part in parts)
    chosen, weight = by_weight(walk, parts, lambda part: part.weight.value)
    changed = _header_changes(chosen)
    told = f"by weight {weight} of {total} it goes to {chosen.name}{f'; {changed}' if changed else ''}"
    walk.tell(DecisionStage.ROUTE, told, sources_of(route.metadata))
    change_headers(chosen, seen.headers)
    if chosen.host_rewrite_literal:
        seen.headers.set(":authority", chosen.host_rewrite_literal)
    return str(chosen.name)


def _header_changes(message: Route | WeightedCluster.ClusterWeight) -> str:
    """By their names: what is in them may be long, or nobody's business."""
    told = []
    for whose, added, removed in (
        ("request", message.request_headers_to_add, message.request_headers_to_remove),
        ("answer", message.response_headers_to_add, message.response_headers_to_remove),
    ):
        words = [f"gets {', '.join(dict.fromkeys(each.header.key.lower() for each in added))}"] if added else []
        words += [f"loses {', '.join(removed)}"] if removed else []
        told += [f"the {whose} {' and '.join(words)}"] if words else []
    return "; ".join(told)


def _tell_deadline(headers: RequestHeaders, action: RouteAction) -> None:
    """gRPC's caller may have said less than the route; the server learns what is left of it for one try."""
    limit, single = _milliseconds(action.max_grpc_timeout), _milliseconds(action.retry_policy.per_try_timeout)
    said = _DEADLINE.fullmatch(headers.value("grpc-timeout"))
    if said is not None and said[2] in "un":
        headers.remove("grpc-timeout")
        headers.make_up("grpc-timeout")
        return
    whole = int(said[1]) * _UNITS[said[2]] if said is not None else 0
    if limit and (not whole or whole > limit):
        whole = limit
    left = min(single, whole) if single and whole else single or whole
    if left:
        unit = next((unit for unit, size in _UNITS.items() if left // size <= _MOST_UNITS), "H")
        headers.set("grpc-timeout", f"{min(left // _UNITS[unit], _MOST_UNITS)}{unit}")


def _patience(action: RouteAction) -> str:
    parts = []
    if action.HasField("timeout") and (seconds := _seconds(action.timeout)):
        parts.append(f"answered within {seconds:g} s or 504")
    if action.HasField("retry_policy"):
        policy = action.retry_policy
        tries = policy.num_retries.value if policy.HasField("num_retries") else 1
        limit = f", {_seconds(policy.per_try_timeout):g} s each" if policy.HasField("per_try_timeout") else ""
        parts.append(f"tried again up to {tries} times on {policy.retry_on}{limit}")
    return "; ".join(parts)


def _milliseconds(duration: Duration) -> int:
    return round(_seconds(duration) * 1000)


def _seconds(duration: Duration) -> float:
    return duration.ToTimedelta().total_seconds()
