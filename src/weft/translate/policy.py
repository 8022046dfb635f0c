"""Translates the effective traffic policy of a port to the settings of a cluster."""

from __future__ import annotations

from envoy.config.cluster.v3.circuit_breaker_pb2 import CircuitBreakers
from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.cluster.v3.outlier_detection_pb2 import OutlierDetection as EnvoyOutlierDetection
from google.protobuf.wrappers_pb2 import UInt32Value

from weft.model.destination_rule import (
    ClientTlsMode,
    ConnectionPool,
    LoadBalancer,
    OutlierDetection,
    RetryBudget,
    SimpleBalancer,
    TrafficPolicy,
    Warmup,
    effective,
)
from weft.model.group import ProxyKind
from weft.model.service import Resolution, Service
from weft.translate.protos import duration
from weft.translate.resilience import limit_retries

__all__ = ["balance", "by_callers_address", "effective", "eject", "is_closed", "limit"]

NO_LIMIT = 2**32 - 1  # Istio's default: a limit that is not configured must not drop requests
_DEFAULT_RING_SIZE = 1024
_PANIC_WITH_FAILOVER = 50  # percent of healthy endpoints; Envoy's own default
_NO_RUNTIME_KEY = "weft.warmup"  # Envoy requires a runtime key; this one is never set

_LIMITS = CircuitBreakers.Thresholds(
    max_connections=UInt32Value(value=NO_LIMIT),
    max_pending_requests=UInt32Value(value=NO_LIMIT),
    max_requests=UInt32Value(value=NO_LIMIT),
)


def by_callers_address(service: Service, chosen: TrafficPolicy, kind: ProxyKind = ProxyKind.SIDECAR) -> bool:
    """Whether a call to the service goes to the address that the caller chose (the original destination), instead of to
    an endpoint that the proxy chooses. At a gateway this is False for a headless service: the original destination
    would be the gateway itself. `chosen`: the effective traffic policy of the called port."""
    passthrough = chosen.load_balancer is not None and chosen.load_balancer.simple is SimpleBalancer.PASSTHROUGH
    headless = service.headless and kind is not ProxyKind.GATEWAY
    return passthrough or headless or service.resolution is Resolution.NONE


def is_closed(chosen: TrafficPolicy) -> bool:
    """Whether no endpoint may be called with the effective traffic policy `chosen`, because the DestinationRule was
    rejected."""
    return chosen.tls is not None and chosen.tls.mode is ClientTlsMode.CLOSED


def balance(cluster: Cluster, balancer: LoadBalancer | None) -> None:
    balancer = balancer or LoadBalancer()
    if (hashing := balancer.consistent_hash) is not None:
        if hashing.maglev:
            cluster.lb_policy = Cluster.MAGLEV
            if hashing.table_size:
                cluster.maglev_lb_config.table_size.value = hashing.table_size
        else:
            cluster.lb_policy = Cluster.RING_HASH
            cluster.ring_hash_lb_config.minimum_ring_size.value = hashing.minimum_ring_size or _DEFAULT_RING_SIZE
        return
    match balancer.simple or SimpleBalancer.LEAST_REQUEST:
        case SimpleBalancer.ROUND_ROBIN:
            cluster.lb_policy = Cluster.ROUND_ROBIN
            if balancer.warmup:
                cluster.round_robin_lb_config.slow_start_config.CopyFrom(_slow_start(balancer.warmup))
        case SimpleBalancer.RANDOM:
            cluster.lb_policy = Cluster.RANDOM
        case SimpleBalancer.PASSTHROUGH:
            cluster.lb_policy = Cluster.CLUSTER_PROVIDED
        case SimpleBalancer.LEAST_REQUEST:
            cluster.lb_policy = Cluster.LEAST_REQUEST
            if balancer.warmup:
                cluster.least_request_lb_config.slow_start_config.CopyFrom(_slow_start(balancer.warmup))


def _slow_start(warmup: Warmup) -> Cluster.SlowStartConfig:
    result = Cluster.SlowStartConfig(slow_start_window=duration(warmup.duration))
    if warmup.aggression is not None:
        result.aggression.default_value = warmup.aggression
        result.aggression.runtime_key = _NO_RUNTIME_KEY
    if warmup.minimum_percent is not None:
        result.min_weight_percent.value = warmup.minimum_percent
    return result


def limits_retries(policy: TrafficPolicy) -> bool:
    """Whether the policy configures the number of retries."""
    pool = policy.connection_pool
    return policy.retry_budget is not None or bool(pool is not None and pool.max_retries)


def limit(cluster: Cluster, pool: ConnectionPool | None, budget: RetryBudget | None = None) -> None:
    """Set the circuit breakers, the connect timeout and TCP keepalive of a cluster, as the connection pool `pool`
    declares, and the limit of retries, as the retry budget `budget` or else `pool` declares. `clusters.py` sets the
    HTTP settings of a connection pool."""
    limits = cluster.circuit_breakers.thresholds.add()
    limits.CopyFrom(_LIMITS)
    limit_retries(limits, budget, pool.max_retries if pool is not None else None)
    if pool is None:
        return
    for written, field in (
        (pool.max_connections, limits.max_connections),
        (pool.max_pending_requests, limits.max_pending_requests),
        (pool.max_requests, limits.max_requests),
    ):
        if written:  # 0 means no limit, as in Istio
            field.value = written
    if pool.connect_timeout:
        cluster.connect_timeout.CopyFrom(duration(pool.connect_timeout))
    if pool.keepalive is not None:
        keepalive = cluster.upstream_connection_options.tcp_keepalive
        keepalive.SetInParent()
        if pool.keepalive.probes:
            keepalive.keepalive_probes.value = pool.keepalive.probes
        if pool.keepalive.time:
            keepalive.keepalive_time.value = int(pool.keepalive.time.total_seconds())
        if pool.keepalive.interval:
            keepalive.keepalive_interval.value = int(pool.keepalive.interval.total_seconds())


def eject(cluster: Cluster, detection: OutlierDetection | None, *, fails_over: bool = False) -> None:
    """Set the cluster's outlier detection; do nothing if `detection` is None. `fails_over`: calls move to other
    localities when the nearer endpoints are ejected. By default Envoy ejects at most 10 % of the endpoints, which is
    none if there are fewer than ten, so there would be no failover; with `fails_over` the default is 100 %. Panic mode
    (Envoy uses all endpoints, ejected or not, if too few are healthy) is off, because it would undo the ejection. Only
    where this default of 100 % applies, panic mode begins when fewer than 50 % of the endpoints are healthy.
    `min_health_percent`, if set, is the threshold in every case."""
    if detection is None:
        return
    outlier: EnvoyOutlierDetection = cluster.outlier_detection
    outlier.enforcing_success_rate.value = 0
    if detection.consecutive_5xx is not None:
        outlier.consecutive_5xx.value = detection.consecutive_5xx
        outlier.enforcing_consecutive_5xx.value = 100 if detection.consecutive_5xx else 0
    if detection.consecutive_gateway_errors is not None:
        outlier.consecutive_gateway_failure.value = detection.consecutive_gateway_errors
        outlier.enforcing_consecutive_gateway_failure.value = 100 if detection.consecutive_gateway_errors else 0
    if detection.split_local_origin:
        outlier.split_external_local_origin_errors = True
        outlier.enforcing_local_origin_success_rate.value = 0
        if detection.consecutive_local_origin_failures is not None:
            failures = detection.consecutive_local_origin_failures
            outlier.consecutive_local_origin_failure.value = failures
            outlier.enforcing_consecutive_local_origin_failure.value = 100 if failures else 0
    if detection.interval:
        outlier.interval.CopyFrom(duration(detection.interval))
    if detection.base_ejection_time:
        outlier.base_ejection_time.CopyFrom(duration(detection.base_ejection_time))
    panic = 0  # panic mode (use all endpoints if too few are healthy) would undo ejection
    if detection.max_ejection_percent is not None:
        outlier.max_ejection_percent.value = detection.max_ejection_percent
    elif fails_over:
        outlier.max_ejection_percent.value = 100
        panic = _PANIC_WITH_FAILOVER
    if detection.min_health_percent is not None:
        panic = detection.min_health_percent
    cluster.common_lb_config.healthy_panic_threshold.value = panic
