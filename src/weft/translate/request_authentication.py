"""Translates RequestAuthentications to the HTTP filters that verify tokens of the configured issuers, before
authorization policies, and to the clusters through which the proxy fetches the issuers' keys.

A request without a token is accepted and has no principal. A request with an invalid token gets 401 (403 for a wrong
audience). The claims of a valid token are in the request's metadata, where policies read them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import timedelta

from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.core.v3.base_pb2 import RetryPolicy
from envoy.config.listener.v3.listener_components_pb2 import Filter
from envoy.config.rbac.v3 import rbac_pb2
from envoy.config.route.v3.route_components_pb2 import RouteMatch
from envoy.extensions.clusters.common.dns.v3.dns_pb2 import DnsLookupFamily
from envoy.extensions.clusters.dns.v3.dns_cluster_pb2 import DnsCluster
from envoy.extensions.filters.http.header_mutation.v3.header_mutation_pb2 import HeaderMutation
from envoy.extensions.filters.http.jwt_authn.v3.config_pb2 import (
    JwtAuthentication,
    JwtProvider,
    JwtRequirement,
    RemoteJwks,
)
from envoy.extensions.filters.http.rbac.v3.rbac_pb2 import RBAC
from envoy.extensions.filters.network.http_connection_manager.v3.http_connection_manager_pb2 import HttpFilter
from envoy.extensions.filters.network.rbac.v3 import rbac_pb2 as network_rbac
from envoy.extensions.transport_sockets.tls.v3.common_pb2 import SubjectAltNameMatcher, TlsParameters
from envoy.extensions.transport_sockets.tls.v3.tls_pb2 import UpstreamTlsContext

from weft.api.syntax import is_address
from weft.model.group import ProxyKind
from weft.model.names import ObjectKey
from weft.model.request_authentication import JwtRule, KeyServer, RequestAuthentication
from weft.model.settings import Settings
from weft.translate import names
from weft.translate.built import Built, build
from weft.translate.protos import duration, packed, socket_address
from weft.translate.provenance import keys, of_objects
from weft.translate.resilience import limit_retries
from weft.translate.tls import SYSTEM_ROOTS, TLS
from weft.translate.view import GroupView

CHECK = "envoy.filters.http.jwt_authn"  # name of the filter, and namespace of its metadata
PAYLOAD = "payload"  # metadata key: the claims of the accepted token
FAILURE = "failure"  # metadata key: why a token was rejected
STRIP = "envoy.filters.http.header_mutation"
REFUSE = "envoy.filters.http.rbac"
CUT = "envoy.filters.network.rbac"

_SPACE_DELIMITED = frozenset({"permission", "scope"})  # values separated by spaces, as RFC 8693 defines for `scope`
_FETCH_TIMEOUT = timedelta(seconds=5)  # Istio's default
_KEPT = timedelta(minutes=5)  # how long fetched keys are used before they are fetched again; Istio's default
_AFTER_FAILURE = timedelta(seconds=5)  # not Envoy's 1 s: a key server that is down would get requests from every proxy
# Header names per regular expression: even with long names, it stays far below the size that Envoy accepts.
_AT_ONCE = 20
_DNS_REFRESH = timedelta(minutes=1)


def filters(view: GroupView) -> tuple[HttpFilter, ...]:
    if refused := _refused(view):
        return (_nobody(refused),)
    rules = _rules(view)
    if not rules:
        return ()
    check = HttpFilter(name=CHECK, typed_config=packed(_check(rules, reroute=view.kind is ProxyKind.GATEWAY)))
    written = sorted(_written(rules))
    return (_strip(written), check) if written else (check,)


def network_filters(view: GroupView) -> tuple[Filter, ...]:
    """Return the network filters for connections that were not detected as HTTP. If a RequestAuthentication was
    rejected, they deny all such connections, because these may carry HTTP after all: an empty line before a request
    hides it from Envoy's HTTP inspector, but not from every server."""
    refused = _refused(view)
    return (_no_connection(refused),) if refused else ()


def clusters(view: GroupView) -> tuple[Built, ...]:
    """Return the clusters to key servers outside the mesh. A key server in the mesh is called through its own cluster,
    like any service."""
    servers = {
        _cluster_name(rule.key_server): (rule.key_server, authentication.origin)
        for authentication in reversed(view.authentication)
        for rule in authentication.rules
        if rule.key_server is not None and not rule.key_server.meshed
    }
    return tuple(
        _key_cluster(name, server, view.settings, keys(origin)) for name, (server, origin) in sorted(servers.items())
    )


def written_by(view: GroupView) -> dict[str, RequestAuthentication]:
    """Return the RequestAuthentication behind each provider of the JWT filter, by the provider's name."""
    return {_provider_name(at): each for at, (_, each) in enumerate(_rules_and_owners(view))}


def _rules(view: GroupView) -> tuple[JwtRule, ...]:
    return tuple(rule for rule, _ in _rules_and_owners(view))


def _rules_and_owners(view: GroupView) -> list[tuple[JwtRule, RequestAuthentication]]:
    """Return the JWT rules of all RequestAuthentications, each with its object, in Istio's order: by issuer."""
    pairs = ((rule, each) for each in view.authentication for rule in each.rules)
    return sorted(pairs, key=lambda pair: pair[0].issuer)


def _check(rules: tuple[JwtRule, ...], *, reroute: bool) -> JwtAuthentication:
    """Return the config of the JWT filter: a provider for each rule, and for all paths the requirement of `_required`.
    CORS preflights are not checked, because browsers send them without credentials. `reroute`: whether the route is
    chosen again when a token was accepted, so that routes may match the token's claims."""
    result = JwtAuthentication(bypass_cors_preflight=True)  # browsers send preflights without credentials
    for position, rule in enumerate(rules):
        result.providers[_provider_name(position)].CopyFrom(_provider(rule))
        result.providers[_provider_name(position)].clear_route_cache = reroute
    # The prefix is empty and not `/`, so that it also matches the path of `OPTIONS *`.
    result.rules.add(match=RouteMatch(prefix=""), requires=_required(rules))
    return result


def _provider(rule: JwtRule) -> JwtProvider:
    result = JwtProvider(
        issuer=rule.issuer,
        audiences=rule.audiences,
        from_params=rule.from_params,
        from_cookies=rule.from_cookies,
        forward=rule.forward_original_token,
        forward_payload_header=rule.output_payload_header,
        payload_in_metadata=PAYLOAD,
        failed_status_in_metadata=FAILURE,
    )
    result.normalize_payload_in_metadata.space_delimited_claims.extend(
        sorted(_SPACE_DELIMITED.union(rule.space_delimited_claims))
    )
    for header in rule.from_headers:
        result.from_headers.add(name=header.name, value_prefix=header.prefix)
    for claim, name in rule.claims_to_headers:
        result.claim_to_headers.add(claim_name=claim, header_name=name)
    if rule.key_server is not None:
        result.remote_jwks.CopyFrom(_fetched(rule.key_server, rule.timeout or _FETCH_TIMEOUT))
    else:
        result.local_jwks.inline_string = rule.jwks
    return result


def _required(rules: tuple[JwtRule, ...]) -> JwtRequirement:
    """Return the requirement that the tokens of a request must meet. Every token in a place where a rule looks for one
    must be valid: among the rules that look in the same place, one must accept the token. Istio only requires that one
    of all rules accepts a token, so there a valid token for one rule lets a forged token for another rule pass.

    If a request has several valid tokens, the one that Envoy evaluates last sets the principal. Here that is the token
    of the rule that is first by issuer, as in Istio, so the requirement lists the groups of rules (`_sharing_places`)
    in reverse order."""
    groups = [_required_of(group) for group in _sharing_places(rules)]
    if len(groups) == 1:
        return groups[0]
    result = JwtRequirement()
    result.requires_all.requirements.extend(reversed(groups))
    return result


def _required_of(positions: tuple[int, ...]) -> JwtRequirement:
    optional = [_any(_provided(position), JwtRequirement(allow_missing={})) for position in positions]
    if len(optional) == 1:
        return optional[0]
    each = JwtRequirement()
    each.requires_all.requirements.extend(optional)
    return _any(*(_provided(position) for position in positions), each)


def _any(*requirements: JwtRequirement) -> JwtRequirement:
    result = JwtRequirement()
    result.requires_any.requirements.extend(requirements)
    return result


def _provided(position: int) -> JwtRequirement:
    return JwtRequirement(provider_name=_provider_name(position))


def _provider_name(position: int) -> str:
    return f"origins-{position}"


def _sharing_places(rules: tuple[JwtRule, ...]) -> list[tuple[int, ...]]:
    """Return the positions of the rules in groups. Two rules are in one group if they look for a token in the same
    place, or if other rules connect them: if the first and second rule share a header, and the second and third share a
    parameter, all three are in one group."""
    groups: list[tuple[set[tuple[str, str]], list[int]]] = []
    for position, rule in enumerate(rules):
        places, members = set(_places(rule)), [position]
        for group in [group for group in groups if not group[0].isdisjoint(places)]:
            places |= group[0]
            members = group[1] + members
            groups.remove(group)
        groups.append((places, sorted(members)))
    return sorted(tuple(members) for _, members in groups)


def _places(rule: JwtRule) -> Iterator[tuple[str, str]]:
    if not (rule.from_headers or rule.from_params or rule.from_cookies):
        yield from (("header", "authorization"), ("param", "access_token"))
    yield from (("header", header.name) for header in rule.from_headers)
    yield from (("param", name) for name in rule.from_params)
    yield from (("cookie", name) for name in rule.from_cookies)


def _written(rules: Iterable[JwtRule]) -> set[str]:
    """Return the headers in which the rules pass claims or the whole payload to the application
    (`outputClaimToHeaders`, `outputPayloadToHeader`). Headers in which a rule looks for a token are left out."""
    rules = tuple(rules)
    read = {_as_one(name) for rule in rules for kind, name in _places(rule) if kind == "header"}
    written = {header for rule in rules for _, header in rule.claims_to_headers}
    written |= {rule.output_payload_header for rule in rules if rule.output_payload_header}
    return {header for header in written if _as_one(header) not in read}


def _strip(headers: list[str]) -> HttpFilter:
    """Return the filter that removes these headers from requests, because a caller may have set them itself. For
    `x-user` it removes `x_user`, too, because WSGI, CGI and PHP do not distinguish the two. The JWT filter removes only
    the exact names, and skips CORS preflights."""
    patterns = sorted({re.escape(_as_one(header)).replace(r"\-", "[-_]") for header in headers})
    mutation = HeaderMutation()
    for start in range(0, len(patterns), _AT_ONCE):
        removal = mutation.mutations.request_mutations.add()
        removal.remove_on_match.key_matcher.safe_regex.regex = "|".join(patterns[start : start + _AT_ONCE])
    return HttpFilter(name=STRIP, typed_config=packed(mutation))


def _as_one(header: str) -> str:
    return header.replace("_", "-")


def _refused(view: GroupView) -> list[str]:
    return [f"{each.namespace}/{each.name}" for each in view.authentication if each.refused]


def _nobody(refused: list[str]) -> HttpFilter:
    """Return a filter that denies every request. The names of the rejected objects (`refused`) appear in the response
    details of the access log."""
    return HttpFilter(name=REFUSE, typed_config=packed(RBAC(rules=_denied(refused))))


def _no_connection(refused: list[str]) -> Filter:
    return Filter(name=CUT, typed_config=packed(network_rbac.RBAC(stat_prefix="tcp.", rules=_denied(refused))))


def _denied(refused: list[str]) -> rbac_pb2.RBAC:
    rules = rbac_pb2.RBAC(action=rbac_pb2.RBAC.DENY)
    for name in refused:
        policy = rules.policies[f"refused RequestAuthentication {name}"]
        policy.permissions.append(rbac_pb2.Permission(any=True))
        policy.principals.append(rbac_pb2.Principal(any=True))
    return rules


def _fetched(server: KeyServer, timeout: timedelta) -> RemoteJwks:
    """Return the config for keys that the proxy fetches in the background from `server`; `timeout` applies to each
    fetch. While there are no keys, a request with a token fetches the keys itself and waits for them; if that fails,
    the token is rejected. The listener becomes active without waiting for the keys, so a slow key server does not delay
    it."""
    result = RemoteJwks(cache_duration=duration(_KEPT), retry_policy=_RETRIES)
    result.http_uri.uri = server.uri
    result.http_uri.cluster = _cluster_name(server)
    result.http_uri.timeout.CopyFrom(duration(timeout))
    result.async_fetch.fast_listener = True
    result.async_fetch.failed_refetch_duration.CopyFrom(duration(_AFTER_FAILURE))
    return result


def _retries() -> RetryPolicy:
    result = RetryPolicy()
    result.num_retries.value = 2
    result.retry_back_off.base_interval.CopyFrom(duration(timedelta(milliseconds=200)))
    result.retry_back_off.max_interval.CopyFrom(duration(timedelta(seconds=2)))
    return result


_RETRIES = _retries()


def _cluster_name(server: KeyServer) -> str:
    if server.meshed:
        return names.outbound_cluster(server.host, server.port, "")
    return f"jwks|{server.port}|{'https' if server.tls else 'http'}|{server.host}"


def _key_cluster(name: str, server: KeyServer, settings: Settings, sources: tuple[ObjectKey, ...]) -> Built:
    cluster = Cluster(name=name, connect_timeout=duration(settings.connect_timeout))
    cluster.load_assignment.cluster_name = name
    address = cluster.load_assignment.endpoints.add().lb_endpoints.add().endpoint.address
    address.CopyFrom(socket_address(server.host, server.port))
    if is_address(server.host):
        cluster.type = Cluster.STATIC
    else:
        cluster.cluster_type.name = "envoy.clusters.dns"
        cluster.cluster_type.typed_config.CopyFrom(
            packed(
                DnsCluster(
                    dns_lookup_family=DnsLookupFamily.V4_PREFERRED,
                    dns_refresh_rate=duration(_DNS_REFRESH),
                    respect_dns_ttl=True,
                )
            )
        )
    if server.tls:
        cluster.transport_socket.name = TLS
        cluster.transport_socket.typed_config.CopyFrom(packed(_verified(server.host)))
    limit_retries(cluster.circuit_breakers.thresholds.add(), None, None)
    cluster.metadata.CopyFrom(of_objects(sources))
    return build(name, cluster, sources)


def _verified(host: str) -> UpstreamTlsContext:
    """Return a TLS context that verifies a key server like a browser does: a certificate for this host, from a CA that
    the system trusts."""
    result = UpstreamTlsContext(sni="" if is_address(host) else host)
    common = result.common_tls_context
    common.tls_params.tls_minimum_protocol_version = TlsParameters.TLSv1_2
    common.validation_context.trusted_ca.filename = SYSTEM_ROOTS
    kind = SubjectAltNameMatcher.IP_ADDRESS if is_address(host) else SubjectAltNameMatcher.DNS
    name = common.validation_context.match_typed_subject_alt_names.add(san_type=kind)
    name.matcher.exact = host
    return result
