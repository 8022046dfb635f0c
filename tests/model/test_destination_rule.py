"""Which policy holds where: `tests/translate/test_policy.py` has the cases of what it means."""

from datetime import timedelta
from itertools import product

from weft.model.destination_rule import (
    DestinationRule,
    LoadBalancer,
    PolicyLevel,
    SimpleBalancer,
    Subset,
    TrafficPolicy,
    decided_at,
    effective,
    levels,
    passes_on,
)


def policy(balancer, *ports):
    return TrafficPolicy(load_balancer=LoadBalancer(balancer), ports=ports)


RANDOM, ROBIN, AS_CALLED = SimpleBalancer.RANDOM, SimpleBalancer.ROUND_ROBIN, SimpleBalancer.PASSTHROUGH


def test_levels_returns_every_level_of_a_rule():
    rule = DestinationRule(
        "r", "shop", "a", policy(RANDOM, (80, policy(ROBIN))), (Subset("v1", policy=policy(AS_CALLED)), Subset("v2"))
    )
    assert [level.load_balancer.simple for level in levels(rule)] == [RANDOM, ROBIN, AS_CALLED]
    assert list(levels(None)) == []


def test_passes_on_is_true_if_any_level_has_passthrough():
    assert not passes_on(DestinationRule("r", "shop", "a", policy(RANDOM)))
    assert passes_on(DestinationRule("r", "shop", "a", policy(RANDOM, (80, policy(AS_CALLED)))))
    assert passes_on(DestinationRule("r", "shop", "a", subsets=(Subset("v1", policy=policy(AS_CALLED)),)))


def test_a_port_entry_replaces_its_whole_level():
    rule = DestinationRule("r", "shop", "a", policy(RANDOM, (80, TrafficPolicy())))
    assert effective(rule, 80) == TrafficPolicy()
    assert effective(rule, 90).load_balancer == LoadBalancer(RANDOM)


def test_decided_at_returns_the_level_whose_value_is_effective():
    """All ways in which four levels can be absent, silent, or say something of their own."""
    said = {level: LoadBalancer(warmup=timedelta(seconds=number)) for number, level in enumerate(PolicyLevel, 1)}

    def written(level, at_port, how, how_at_port):
        if how == "absent":
            return None
        ports = (
            () if how_at_port == "absent" else ((80, TrafficPolicy(said[at_port] if how_at_port == "says" else None)),)
        )
        return TrafficPolicy(said[level] if how == "says" else None, ports=ports)

    silenced = 0
    for host, host_port, own, own_port in product(("absent", "silent", "says"), repeat=4):
        subset = Subset("v1", policy=written(PolicyLevel.SUBSET, PolicyLevel.SUBSET_PORT, own, own_port))
        rule = DestinationRule(
            "r", "shop", "h", written(PolicyLevel.HOST, PolicyLevel.HOST_PORT, host, host_port), (subset,)
        )
        for chosen in (subset, None):
            found = decided_at(rule, 80, "load_balancer", chosen)
            assert effective(rule, 80, chosen).load_balancer == (said[found.level] if found.level else None)
            assert found.passed is not found.level or found.level is None
            silenced += found.passed is not None
    assert silenced
    assert decided_at(None, 80, "load_balancer").level is None
