import pytest

from api.reading import istio, told, value
from weft.model.destination_rule import Distribution, LocalitySetting


def rule(setting):
    return istio("DestinationRule", f"host: a\ntrafficPolicy: {{loadBalancer: {{localityLbSetting: {setting}}}}}")


def setting(text):
    return value(rule(text)).policy.load_balancer.locality


def test_reads_distribute_failover_and_priority():
    assert setting("{failover: [{from: eu, to: us}], failoverPriority: [tier]}") == LocalitySetting(
        failover=(("eu", "us"),), failover_priority=("tier",)
    )
    assert setting("{distribute: [{from: eu/a/*, to: {eu/a/*: 80, us: 20}}]}") == LocalitySetting(
        distribute=(Distribution("eu/a/*", (("eu/a/*", 80), ("us", 20))),)
    )
    assert setting("{enabled: false}") == LocalitySetting(enabled=False)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{distribute: [{from: eu, to: {eu: 80, us: 10}}]}", "add up to 90 %"),
        ("{distribute: [{from: eu, to: {eu: 80, eu/a: 20}}]}", "`eu/a` is in another entry too"),
        ("{distribute: [{from: eu, to: {us: 100}}, {from: eu/a, to: {us: 100}}]}", "`eu/a` is in another entry too"),
        ("{distribute: [{from: eu/*/a, to: {us: 100}}]}", "is not a locality"),
        ("{distribute: [{from: eu, to: {us: 101}}]}", "100"),
        ("{distribute: [{from: eu, to: {us: 100}}], failover: [{from: eu, to: us}]}", "only one of"),
        ("{failover: [{from: eu, to: eu}]}", "to the same region"),
        ("{failover: [{from: eu/a, to: us}]}", "is not a region"),
        ("{failover: [{from: eu, to: us}, {from: eu, to: ap}]}", "in another entry"),
        ("{failover: [{from: eu, to: us}], failoverPriority: [topology.kubernetes.io/zone]}", "sets them again"),
        ("{failoverPriority: [kubernetes.io/hostname]}", "the node of a caller is not known"),
    ],
)
def test_rejects_contradictory_settings(text, said):
    assert said in "\n".join(told(rule(text)))
