"""Find the reasons for a cluster, field by field: the DestinationRule's setting and its level (host, subset or
port), the mesh's setting, or the default. The functions that select the setting are the same that translation
uses."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from envoy.config.cluster.v3.cluster_pb2 import Cluster

from weft.explain.decision import ObjectSource, sources_of
from weft.inspect.reasons import gateway_api as standard
from weft.inspect.reasons import rules
from weft.inspect.reasons.part import Ground, Part, sources
from weft.inspect.reasons.rules import DecisionRule
from weft.model.destination_rule import (
    ClientTlsMode,
    ConnectionPool,
    DestinationRule,
    PolicyLevel,
    Subset,
    TrafficPolicy,
    decided_at,
    line_of,
)
from weft.model.inbound_port import InboundPort
from weft.model.locality import fails_over, without_rule
from weft.model.names import CredentialRef
from weft.model.service import Resolution, Service, ServicePort
from weft.model.settings import Settings
from weft.translate import names, policy
from weft.translate.clusters import UpstreamHttp, inbound_upstream, together, upstream
from weft.translate.origination import certificate_name
from weft.translate.view import ServiceView

_DEFAULT = Settings()
_POOL, _BALANCER, _OUTLIER, _TLS = "connection_pool", "load_balancer", "outlier_detection", "tls"
_BUDGET, _HEADER = "retry_budget", "proxy_protocol"
_WRITTEN = {_POOL: "connectionPool", _BALANCER: "loadBalancer", _OUTLIER: "outlierDetection", _TLS: "tls",
            _BUDGET: "retryBudget", _HEADER: "proxyProtocol"}  # fmt: skip
_HTTP_OPTIONS = "typed_extension_protocol_options"


def parts(ground: Ground, cluster: Cluster) -> Iterator[Part]:
    name = cluster.name
    direction, *rest = name.split("|")
    if direction == "outbound" and len(rest) == 3:
        yield from _outbound(ground, cluster, int(rest[0]), rest[1], rest[2])
    elif direction == "inbound" and len(rest) == 3:
        yield from _inbound(ground, cluster, int(rest[0]))
    elif name == names.BLACK_HOLE:
        yield _part("", (), rules.BLACK_HOLE)
    elif name.startswith(names.HOLD):
        objects, by = ground.on_demand()
        yield _part("", objects, *by)
    elif name == names.PASSTHROUGH:
        objects, by = ground.outbound()
        yield _part("", objects, rules.UNKNOWN_HOSTS, *by)
        yield from _default_parts(ground, cluster)
    elif name == names.INBOUND_PASSTHROUGH:
        yield _part("", (), rules.INBOUND_REST)
        yield from _default_parts(ground, cluster)
    else:
        yield _part("", sources_of(cluster.metadata), rules.KEY_SERVER)


def level_rules(level: PolicyLevel | None, passed: PolicyLevel | None) -> tuple[DecisionRule, ...]:
    """The rules by which the setting of a field at one level of a DestinationRule (host, subset, port) replaces the
    setting at a wider level. `level`: the level whose setting is used; None if no setting is used, because port-level
    settings, which do not set this field, replace everything at wider levels. `passed`: the wider level whose setting
    is replaced; None, with the result (), if no wider level sets the field."""
    if passed is None:
        return ()
    if level in (PolicyLevel.HOST_PORT, PolicyLevel.SUBSET_PORT) or level is None or passed is PolicyLevel.SUBSET:
        return (rules.PORT_REPLACES_HOST,)
    return (rules.SUBSET_OVER_HOST,)


class Policy:
    """The traffic policy for a port and subset. `of` returns the object that sets one of its fields."""

    def __init__(
        self,
        rule: DestinationRule | None,
        port: int,
        subset: Subset | None,
        pool: tuple[ConnectionPool, tuple[ObjectSource, ...]] | None = None,
    ) -> None:
        """The policy of calls to a port and subset by `rule`. `subset`: None for calls without a subset. `pool`: a
        Sidecar's connection pool, which replaces the one of the DestinationRule, and the Sidecar as its source; None if
        no Sidecar sets one."""
        self.rule, self._port, self._subset = rule, port, subset
        self.chosen: TrafficPolicy = policy.effective(rule, port, subset)
        self._pool_by: tuple[ObjectSource, ...] = ()
        if pool is not None:
            self.chosen, self._pool_by = msgspec.structs.replace(self.chosen, connection_pool=pool[0]), pool[1]

    def of(self, field: str) -> tuple[tuple[ObjectSource, ...], tuple[DecisionRule, ...]]:
        """The object that sets the field, and the rules by which its setting takes precedence over others. The first
        tuple is empty if no object sets the field."""
        if field == _POOL and self._pool_by:
            return self._pool_by, (rules.POOL_OF_SIDECAR,)
        decided = decided_at(self.rule, self._port, field, self._subset)
        by = level_rules(decided.level, decided.passed)
        if self.rule is None or decided.level is None:
            return (), by
        subset = self._subset if decided.level in (PolicyLevel.SUBSET, PolicyLevel.SUBSET_PORT) else None
        name = subset.name if subset else ""
        part = f"{decided.level.value.replace('[]', f'[{name}]')}.{_WRITTEN[field]}"
        line = line_of(decided.level, self.rule, self._port, subset)
        return sources(self.rule.origin_of(subset), line=line, part=part), by


def secret(ground: Ground, name: str, asked_by: tuple[ObjectSource, ...]) -> Part:
    """The reasons for a secret that a cluster uses for TLS origination. `name`: the secret's name, which contains that
    of the cluster. `asked_by`: the DestinationRules of the cluster. `ground`: the views of the proxies' group."""
    number, subset_name, host = name.rpartition("/")[0].split("|")[1:]
    view = ground.service(host)
    rule = view.rule if view is not None else None
    subset = next((each for each in rule.subsets if each.name == subset_name), None) if rule else None
    written = policy.effective(rule, int(number), subset).tls
    if by_policy := standard.tls_by_policy(ground, host, int(number), written):
        if written is not None and written.pair is not None and name == certificate_name(name.rpartition("/")[0]):
            return standard.client_certificate(ground, written)
        return standard.roots_of_policy(ground, by_policy)
    if written is not None and written.credential:
        credential = ground.mesh.credential(CredentialRef(written.credential, ground.group.namespace))
        return _part(
            "", (*sources(credential.origin if credential is not None else None), *asked_by), rules.OUT_OF_SECRET
        )
    return _part("", asked_by, rules.FILES_OF_RULE)


def _outbound(ground: Ground, cluster: Cluster, number: int, subset_name: str, host: str) -> Iterator[Part]:
    view = ground.service(host)
    if subset_name.startswith(names.CHOSEN) and view is not None:
        subset_name, view = subset_name.removeprefix(names.CHOSEN), together(view)
    port = view.service.port(number) if view is not None and view.service is not None else None
    rule = view.rule if view is not None else None
    subset = next((each for each in rule.subsets if each.name == subset_name), None) if rule else None
    if view is None or view.service is None or port is None or bool(subset_name) != (subset is not None):
        # The mesh has changed since the cluster was sent.
        yield _part("", sources_of(cluster.metadata), rules.LAST_ACCEPTED)
        return
    found = Policy(rule, number, subset)
    scoped, by_scope = ground.scope()
    made_by = sources(*view.service.origins)
    if subset is not None and rule is not None:
        made_by = (*sources(rule.origin_of(subset), line=subset.line, part=f"subsets[{subset.name}]"), *made_by)
    if rule is not None:
        made_by = tuple(dict.fromkeys((*made_by, *_others(rule, made_by))))
    by: tuple[DecisionRule, ...] = (rules.CLUSTER_PER_SUBSET if subset else rules.CLUSTER_PER_PORT,)
    if any(each.number == number for each in view.behind):
        by, by_scope = (*by[: bool(subset)], rules.CLUSTER_OF_ROUTE), ()
        leading = ground.mesh.leading_to(host, ground.mesh.scope(ground.group))
        made_by = (*made_by, *sources(*(each.origin for each in leading)))
    by += (rules.NEAREST_RULE,) if rule is not None else ()
    by += (rules.RULES_MERGED,) if rule is not None and rule.others else ()
    yield _part("", (*made_by, *scoped), *by, *by_scope)
    by_policy = standard.tls_by_policy(ground, host, number, found.chosen.tls)
    yield _located(view, found, by_policy)
    yield from _of_pool(ground, cluster, found)
    objects, levels = found.of(_BALANCER)
    balancer = found.chosen.load_balancer
    simple = balancer is None or (balancer.simple is None and balancer.consistent_hash is None)
    yield _part("lb_policy", objects, *levels, *((rules.LEAST_REQUEST,) if simple else ()))
    yield from _near(ground, view, cluster, found)
    objects, levels = found.of(_OUTLIER)
    yield _part("outlier_detection", objects, *levels, *_ejected(ground, view, found))
    yield from _spoken(view, port, found, cluster)
    yield _secured(ground, view, found, cluster, by_policy)


def _others(rule: DestinationRule, named: tuple[ObjectSource, ...]) -> Iterator[ObjectSource]:
    """The DestinationRules from which `rule` was merged, without those that are already in `named`."""
    known = {(each.kind, each.namespace, each.name) for each in named}
    return (each for each in sources(*rule.origins) if (each.kind, each.namespace, each.name) not in known)


def _inbound(ground: Ground, cluster: Cluster, number: int) -> Iterator[Part]:
    port = next((each for each in ground.view.inbound if each.number == number), None)
    if port is None:
        yield _part("", sources_of(cluster.metadata), rules.LAST_ACCEPTED)
        return
    by_sidecar = sources(ground.sidecar.origin if ground.sidecar else None)
    found = Policy(port.rule, port.service_port, None, (port.pool, by_sidecar) if port.pool else None)
    objects, by = entrance(ground, port)
    ruled = sources(*(port.rule.origins if port.rule else ()))
    by += (rules.RULES_MERGED,) if port.rule is not None and port.rule.others else ()
    yield _part("", (*objects, *ruled), rules.CLUSTER_PER_INBOUND_PORT, *by)
    yield from _of_pool(ground, cluster, found)
    if cluster.typed_extension_protocol_options:
        of_pool, levels = found.of(_POOL)
        beside = cluster.name == names.inbound_cluster(number, as_called=True)
        as_called = beside or inbound_upstream(port) is UpstreamHttp.AS_CALLED
        rule = rules.HTTP_AS_CALLED if as_called else rules.HTTP_AS_DECLARED
        told_apart = (rules.CALLERS_TOLD_APART,) if port.carried.both_ways else ()
        yield _part(_HTTP_OPTIONS, of_pool or objects, *levels, rule, *told_apart)


def entrance(ground: Ground, port: InboundPort) -> tuple[tuple[ObjectSource, ...], tuple[DecisionRule, ...]]:
    """The objects that declare an inbound port of the workload, and the rules that apply. The objects are Services;
    without a Service for the port, the Sidecar with its ingress; without that, the workload's own object. `ground`: the
    views of the proxies' group."""
    if port.services:
        return sources(*(service.origin for service in port.services)), ()
    if ground.sidecar is not None and ground.sidecar.ingress:
        return sources(ground.sidecar.origin, part="ingress"), (rules.INGRESS_REPLACES_SERVICES,)
    return workloads(ground), (rules.PORT_WITHOUT_SERVICE,)


def workloads(ground: Ground) -> tuple[ObjectSource, ...]:
    """The objects that declare the pods of the group, such as a Workload. `ground`: the views of the proxies' group."""
    group = ground.group
    alike = [each for each in ground.mesh.instances(group.namespace) if each.labels == group.labels and each.meshed]
    return sources(*(each.origin for each in alike[:1]))


def _located(view: ServiceView, found: Policy, by_policy: tuple[ObjectSource, ...]) -> Part:
    service = view.service
    assert service is not None  # noqa: S101 (the caller has checked)
    owner = sources(service.origin)
    if policy.is_closed(found.chosen):
        if by_policy and found.chosen.tls is not None:
            return _part("type", by_policy, standard.closed_or_called(found.chosen.tls))
        return _part("type", found.of(_TLS)[0], rules.CLOSED_RULE)
    if policy.by_callers_address(service, found.chosen, view.caller.kind):
        plain = service.headless or service.resolution is Resolution.NONE
        objects, by = (owner, ()) if plain else found.of(_BALANCER)
        return _part("type", objects, *by, rules.ENDPOINTS_AS_CALLED)
    if service.resolution is Resolution.STATIC:
        return _part("type", owner, rules.ENDPOINTS_BY_EDS)
    if service.resolution is Resolution.DYNAMIC_DNS:
        return _part("cluster_type", owner, rules.ENDPOINT_BY_CALLED_NAME)
    return _part("cluster_type", owner, rules.ENDPOINTS_BY_DNS)


def _of_pool(ground: Ground, cluster: Cluster, found: Policy) -> Iterator[Part]:
    objects, levels = found.of(_POOL)
    pool = found.chosen.connection_pool
    if pool is not None and pool.connect_timeout:
        yield _part("connect_timeout", objects, *levels)
    else:
        yield _connect_timeout(ground)
    limits = (pool.max_connections, pool.max_pending_requests, pool.max_requests) if pool is not None else ()
    budget, budget_levels = found.of(_BUDGET)
    number = pool.max_retries if pool is not None else None
    by_default = (rules.RETRY_BUDGET,) if not budget and not number else ()
    unlimited = () if limits and all(limits) else (rules.NO_LIMITS,)
    by_pool = objects if any((*limits, number)) else ()
    yield _part("circuit_breakers", (*by_pool, *budget), *levels, *budget_levels, *unlimited, *by_default)
    if cluster.HasField("upstream_connection_options"):
        yield _part("upstream_connection_options", objects, *levels)


def _near(ground: Ground, view: ServiceView, cluster: Cluster, found: Policy) -> Iterator[Part]:
    """The reason for the locality settings of a cluster with the traffic policy `found`; nothing if the cluster has no
    locality-weighted load balancing. `ground`: the views of the proxies' group."""
    if cluster.common_lb_config.HasField("locality_weighted_lb_config"):
        yield _part("common_lb_config", *locality(ground, view.service, found))


def _ejected(ground: Ground, view: ServiceView, found: Policy) -> Iterator[DecisionRule]:
    """The rule that decides how many endpoints may be ejected, if the traffic policy `found` does not set this number:
    none without outlierDetection; otherwise all if calls can fail over to another locality, and a tenth if they cannot.
    `ground`: the views of the proxies' group."""
    detection = found.chosen.outlier_detection
    if detection is None:
        yield rules.NO_EJECTION
    elif detection.max_ejection_percent is None:
        default = without_rule(view.service, ground.mesh.settings.locality)
        moves = fails_over(found.chosen, default, view.caller.whereabouts)
        yield rules.ALL_EJECTABLE if moves else rules.TENTH_EJECTABLE


def locality(ground: Ground, service: Service | None, found: Policy) -> tuple[tuple[ObjectSource, ...], DecisionRule]:
    """Return (objects, rule): the object that decides which localities a call with the traffic policy `found` prefers,
    and the rule by which it decides. The first of these applies: a DestinationRule with a localityLbSetting; the
    service with a trafficDistribution; the mesh settings; the DestinationRule whose outlierDetection enables failover.
    `ground`: the views of the proxies' group."""
    balancer = found.chosen.load_balancer
    if balancer is not None and balancer.locality is not None:
        return found.of(_BALANCER)[0], rules.LOCALITY_BY_RULE
    if service is not None and service.distribution is not None:
        return sources(service.origin), rules.LOCALITY_BY_SERVICE
    if ground.mesh.settings.locality != _DEFAULT.locality:
        return sources(ground.mesh.settings.origin), rules.LOCALITY_BY_MESH
    return found.of(_OUTLIER)[0], rules.LOCALITY_FAILOVER


def _default_parts(ground: Ground, cluster: Cluster) -> Iterator[Part]:
    yield _connect_timeout(ground)
    yield _part("circuit_breakers", (), rules.NO_LIMITS, rules.RETRY_BUDGET)


def _connect_timeout(ground: Ground) -> Part:
    settings = ground.mesh.settings
    if settings.connect_timeout != _DEFAULT.connect_timeout:
        return _part("connect_timeout", sources(settings.origin), rules.CONNECT_TIMEOUT_OF_MESH)
    return _part("connect_timeout", (), rules.CONNECT_TIMEOUT)


def _spoken(view: ServiceView, port: ServicePort, found: Policy, cluster: Cluster) -> Iterator[Part]:
    if not cluster.typed_extension_protocol_options:
        return
    objects, levels = found.of(_POOL)
    pool = found.chosen.connection_pool
    asked = pool is not None and (pool.use_client_protocol or pool.h2_upgrade in ("UPGRADE", "DO_NOT_UPGRADE"))
    spoken = upstream(view, port, found.chosen)
    if asked:
        yield _part(_HTTP_OPTIONS, objects, *levels)
    elif spoken is UpstreamHttp.AS_CALLED:
        yield _part(_HTTP_OPTIONS, sources(view.service.origin if view.service else None), rules.HTTP_AS_CALLED)
    elif spoken is UpstreamHttp.HTTP2 and not port.protocol.is_http2:
        yield _part(_HTTP_OPTIONS, (), rules.HTTP2_BETWEEN_PROXIES)
    else:
        owner = sources(view.service.origin if view.service else None)
        yield _part(_HTTP_OPTIONS, objects or owner, *levels, rules.HTTP_AS_DECLARED)


def _secured(
    ground: Ground, view: ServiceView, found: Policy, cluster: Cluster, by_policy: tuple[ObjectSource, ...]
) -> Part:
    path = "transport_socket_matches" if cluster.transport_socket_matches else "transport_socket"
    objects, levels = found.of(_TLS)
    written = found.chosen.tls
    if written is not None and by_policy:
        return _part(path, by_policy, standard.closed_or_called(written))
    if written is not None:
        closed = written.mode is ClientTlsMode.CLOSED
        return _part(path, objects, *levels, rules.CLOSED_RULE if closed else rules.TLS_BY_RULE)
    header, header_levels = found.of(_HEADER)
    if header and not cluster.transport_socket_matches:
        return _part(path, header, *header_levels)
    settings = ground.mesh.settings
    if view.service is not None and view.service.external:
        return _part(path, sources(view.service.origin), *levels, rules.NO_TLS_OUTSIDE)
    if not settings.auto_mtls:
        return _part(path, sources(settings.origin), *levels, rules.NO_AUTO_MTLS)
    return _part(path, (), *levels, rules.AUTO_MTLS)


def _part(path: str, objects: tuple[ObjectSource, ...], *by: DecisionRule) -> Part:
    return Part(path, path, objects, tuple(dict.fromkeys(by)))
