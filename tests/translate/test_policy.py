from datetime import timedelta

from envoy.config.cluster.v3.cluster_pb2 import Cluster

from weft.model.destination_rule import (
    ConnectionPool,
    ConsistentHash,
    DestinationRule,
    HashKey,
    Keepalive,
    LoadBalancer,
    OutlierDetection,
    RetryBudget,
    SimpleBalancer,
    Subset,
    TrafficPolicy,
    Warmup,
)
from weft.translate import policy

RANDOM = LoadBalancer(simple=SimpleBalancer.RANDOM)
ROUND = LoadBalancer(simple=SimpleBalancer.ROUND_ROBIN)
POOL = ConnectionPool(max_connections=11)
OUTLIER = OutlierDetection(consecutive_5xx=9)


def _rule(subset_policy=None):
    return DestinationRule(
        "orders",
        "shop",
        "orders",
        TrafficPolicy(RANDOM, POOL, OUTLIER, ports=((9000, TrafficPolicy(ROUND)),)),
        (Subset("v1", policy=subset_policy),),
    )


def test_without_a_rule_nothing_is_set():
    assert policy.effective(None, 80) == TrafficPolicy()


def test_a_port_entry_discards_everything_else_of_its_level():
    assert policy.effective(_rule(), 9000) == TrafficPolicy(ROUND)
    assert policy.effective(_rule(), 80).connection_pool == POOL


def test_a_subset_overrides_its_host_field_by_field():
    rule = _rule(TrafficPolicy(connection_pool=ConnectionPool(max_connections=33)))
    chosen = policy.effective(rule, 80, rule.subsets[0])
    assert chosen.connection_pool.max_connections == 33
    assert (chosen.load_balancer, chosen.outlier_detection) == (RANDOM, OUTLIER)


def test_a_port_entry_of_a_subset_discards_its_host_too():
    rule = _rule(TrafficPolicy(POOL, ports=((80, TrafficPolicy()),)))
    assert policy.effective(rule, 80, rule.subsets[0]) == TrafficPolicy()


def test_least_request_is_the_default_and_hashing_has_a_ring():
    cluster = Cluster()
    policy.balance(cluster, None)
    assert cluster.lb_policy == Cluster.LEAST_REQUEST
    policy.balance(cluster, LoadBalancer(consistent_hash=ConsistentHash(HashKey.HEADER, "x-user")))
    assert cluster.lb_policy == Cluster.RING_HASH and cluster.ring_hash_lb_config.minimum_ring_size.value == 1024


def test_a_limit_that_is_not_configured_is_no_limit():
    cluster = Cluster()
    keepalive = Keepalive(probes=5, time=timedelta(hours=2))
    policy.limit(cluster, ConnectionPool(max_connections=7, max_retries=0, keepalive=keepalive))
    limits = cluster.circuit_breakers.thresholds[0]
    assert (limits.max_connections.value, limits.max_requests.value) == (7, policy.NO_LIMIT)
    assert cluster.upstream_connection_options.tcp_keepalive.keepalive_time.value == 7200


def test_warmup_of_new_endpoints_follows_the_rule():
    for simple, config in ((SimpleBalancer.ROUND_ROBIN, "round_robin"), (None, "least_request")):
        cluster = Cluster()
        policy.balance(cluster, LoadBalancer(simple, warmup=Warmup(timedelta(seconds=30), 5, 2)))
        slow = getattr(cluster, f"{config}_lb_config").slow_start_config
        assert (slow.slow_start_window.seconds, slow.min_weight_percent.value, slow.aggression.default_value) == (
            30,
            5,
            2,
        )


def test_a_port_keeps_settings_that_its_entry_cannot_have():
    budget = RetryBudget(10, 1)
    level = TrafficPolicy(RANDOM, retry_budget=budget, ports=((80, TrafficPolicy(ROUND)),))
    rule = DestinationRule(
        "a", "shop", "a", level, (Subset("v1", policy=TrafficPolicy(ports=((80, TrafficPolicy()),))),)
    )
    assert policy.effective(rule, 80).retry_budget == budget
    assert policy.effective(rule, 80, rule.subsets[0]) == TrafficPolicy(retry_budget=budget)


def test_ejection_disables_panic_mode_unless_min_health_percent_is_set():
    cluster = Cluster()
    policy.eject(cluster, OutlierDetection(consecutive_5xx=0))
    assert cluster.outlier_detection.enforcing_consecutive_5xx.value == 0
    assert cluster.common_lb_config.HasField("healthy_panic_threshold")
    assert cluster.common_lb_config.healthy_panic_threshold.value == 0
    policy.eject(cluster, OutlierDetection(min_health_percent=40))
    assert cluster.common_lb_config.healthy_panic_threshold.value == 40


def test_a_maglev_table_without_a_size_has_envoys_own():
    cluster = Cluster()
    policy.balance(cluster, LoadBalancer(consistent_hash=ConsistentHash(HashKey.HEADER, maglev=True)))
    assert not cluster.HasField("maglev_lb_config")
    policy.balance(cluster, LoadBalancer(consistent_hash=ConsistentHash(HashKey.HEADER, maglev=True, table_size=251)))
    assert cluster.maglev_lb_config.table_size.value == 251
