"""Which policy holds where: `tests/translate/test_policy.py` has the cases of what it means."""

from weft.model.destination_rule import (
    DestinationRule,
    LoadBalancer,
    SimpleBalancer,
    Subset,
    TrafficPolicy,
    effective,
    levels,
    passes_on,
)


def policy(balancer, *ports):
    return TrafficPolicy(load_balancer=LoadBalancer(balancer), ports=ports)


RANDOM, ROBIN, AS_CALLED = SimpleBalancer.RANDOM, SimpleBalancer.ROUND_ROBIN, SimpleBalancer.PASSTHROUGH


def test_every_level_of_a_rule_is_seen():
    rule = DestinationRule(
        "r", "shop", "a", policy(RANDOM, (80, policy(ROBIN))), (Subset("v1", policy=policy(AS_CALLED)), Subset("v2"))
    )
    assert [level.load_balancer.simple for level in levels(rule)] == [RANDOM, ROBIN, AS_CALLED]
    assert list(levels(None)) == []


def test_calls_are_passed_on_if_any_level_says_so():
    assert not passes_on(DestinationRule("r", "shop", "a", policy(RANDOM)))
    assert passes_on(DestinationRule("r", "shop", "a", policy(RANDOM, (80, policy(AS_CALLED)))))
    assert passes_on(DestinationRule("r", "shop", "a", subsets=(Subset("v1", policy=policy(AS_CALLED)),)))


def test_a_port_stands_for_its_whole_level():
    rule = DestinationRule("r", "shop", "a", policy(RANDOM, (80, TrafficPolicy())))
    assert effective(rule, 80) == TrafficPolicy()
    assert effective(rule, 90).load_balancer == LoadBalancer(RANDOM)
