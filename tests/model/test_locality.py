from weft.model.destination_rule import (
    DestinationRule,
    Distribution,
    LoadBalancer,
    LocalitySetting,
    OutlierDetection,
    TrafficPolicy,
)
from weft.model.endpoint import Endpoint
from weft.model.locality import (
    Whereabouts,
    looks_at_labels,
    matches,
    places,
    setting_for,
    stated,
    weighs_places,
    whereabouts,
)
from weft.model.names import labels_of

HERE = Whereabouts("eu/eu-a")
MESH = LocalitySetting()
OUTLIER = OutlierDetection()
ZONES = ("ap/ap-a", "eu/eu-a", "eu/eu-b", "us/us-a")


def endpoint(number, locality, weight=1, **labels):
    return Endpoint(f"10.0.0.{number}", 80, locality=locality, weight=weight, labels=labels_of(labels))


EVERYWHERE = tuple(endpoint(number, zone) for number, zone in enumerate(ZONES))


def priorities(setting, caller=HERE, endpoints=EVERYWHERE):
    return [(place.locality, place.priority) for place in places(endpoints, caller, setting)]


def test_without_a_setting_all_localities_are_equal():
    assert priorities(None) == [(zone, 0) for zone in ZONES]


def test_the_callers_zone_is_preferred_then_its_region_then_the_rest():
    assert priorities(MESH) == [("ap/ap-a", 2), ("eu/eu-a", 0), ("eu/eu-b", 1), ("us/us-a", 2)]


def test_a_subzone_is_nearer_than_its_zone():
    found = (endpoint(1, "eu/a/1"), endpoint(2, "eu/a/2"), endpoint(3, "eu/b/1"))
    assert [rank for _, rank in priorities(MESH, Whereabouts("eu/a/1"), found)] == [0, 1, 2]


def test_priorities_have_no_gaps_without_near_endpoints():
    assert priorities(MESH, endpoints=EVERYWHERE[3:]) == [("us/us-a", 0)]
    assert priorities(MESH, endpoints=EVERYWHERE[2:]) == [("eu/eu-b", 0), ("us/us-a", 1)]


def test_failover_prefers_one_region():
    setting = LocalitySetting(failover=(("eu", "us"),))
    assert priorities(setting) == [("ap/ap-a", 3), ("eu/eu-a", 0), ("eu/eu-b", 1), ("us/us-a", 2)]


def test_for_a_caller_without_a_locality_all_localities_are_equal():
    assert {rank for _, rank in priorities(MESH, Whereabouts())} == {0}


def test_distribute_weights_the_listed_localities_and_leaves_others_out():
    to = (("eu/eu-a/*", 70), ("eu/*", 20), ("us", 10))
    setting = LocalitySetting(distribute=(Distribution("eu/eu-a/*", to),))
    crowded = (*EVERYWHERE, endpoint(9, "eu/eu-c", weight=3))
    shares = {place.locality: place.weight for place in places(crowded, HERE, setting)}
    assert shares == {"eu/eu-a": 70, "eu/eu-b": 5, "eu/eu-c": 15, "us/us-a": 10}
    assert len(places(crowded, Whereabouts("us/us-a"), setting)) == 5  # nothing is said of callers there


def test_endpoints_with_more_common_labels_from_the_first_on_are_preferred():
    found = (
        endpoint(1, "eu/eu-a", network="n1", version="v1"),
        endpoint(2, "eu/eu-a", network="n1", version="v2"),
        endpoint(3, "eu/eu-a", network="n2", version="v1"),
    )
    setting = LocalitySetting(failover_priority=("network", "version"))
    split = places(found, Whereabouts("eu/eu-a", labels_of({"network": "n1", "version": "v1"})), setting)
    assert [(place.priority, [each.address for each in place.endpoints]) for place in split] == [
        (0, ["10.0.0.1"]),
        (1, ["10.0.0.2"]),
        (2, ["10.0.0.3"]),
    ]


def test_failover_priority_accepts_label_values_and_topology_labels():
    setting = LocalitySetting(failover_priority=("tier=gold", "topology.kubernetes.io/zone"))
    found = (endpoint(1, "eu/eu-a"), endpoint(2, "eu/eu-a", tier="gold"), endpoint(3, "eu/eu-b", tier="gold"))
    assert [rank for _, rank in priorities(setting, HERE, found)] == [0, 2, 1]


def test_failover_orders_localities_within_equal_failover_priority():
    setting = LocalitySetting(failover_priority=("tier=gold",), failover=(("eu", "us"),))
    found = (endpoint(1, "us/us-a", tier="gold"), endpoint(2, "eu/eu-a"), endpoint(3, "ap/ap-a", tier="gold"))
    assert dict(priorities(setting, HERE, found)) == {"us/us-a": 0, "ap/ap-a": 1, "eu/eu-a": 2}


def policy(setting=None, outlier=OUTLIER):
    return TrafficPolicy(load_balancer=LoadBalancer(locality=setting) if setting else None, outlier_detection=outlier)


def test_failover_needs_outlier_detection():
    shares = LocalitySetting(distribute=(Distribution("*", (("*", 100),)),))
    assert setting_for(policy(outlier=None), MESH) is None
    assert setting_for(policy(), MESH) is MESH
    assert setting_for(policy(shares, outlier=None), MESH) is shares
    assert setting_for(policy(LocalitySetting(enabled=False)), MESH) is None
    assert setting_for(policy(), LocalitySetting(enabled=False)) is None
    assert setting_for(policy(MESH), LocalitySetting(enabled=False)) is MESH


def test_locality_weights_are_used_only_with_a_locality_setting_in_the_rule():
    assert not weighs_places(policy(), MESH)
    assert weighs_places(policy(LocalitySetting(failover=(("eu", "us"),))), MESH)
    assert not weighs_places(policy(LocalitySetting(failover=(("eu", "us"),)), outlier=None), MESH)


def rule(policy):
    return DestinationRule("a", "shop", "a.shop", policy)


def test_whereabouts_has_only_what_the_rule_uses():
    labels = labels_of({"app": "web", "network": "n1"})
    assert whereabouts(None, MESH, "eu", labels) is None
    assert whereabouts(rule(policy(outlier=None)), MESH, "eu", labels) is None
    assert whereabouts(rule(policy()), MESH, "eu", labels) == Whereabouts("eu")
    by_label = rule(policy(LocalitySetting(failover_priority=("network", "tier=gold", "topology.kubernetes.io/zone"))))
    assert whereabouts(by_label, MESH, "eu", labels) == Whereabouts("eu", labels_of({"network": "n1"}))
    assert looks_at_labels(by_label, MESH)
    assert not looks_at_labels(rule(policy()), MESH)


def test_a_star_or_an_empty_part_matches_all():
    assert matches("eu/eu-a/1", "*")
    assert matches("eu/eu-a/1", "eu/*")
    assert matches("eu/eu-a", "eu")
    assert not matches("eu/eu-a", "eu/eu-b/*")


def test_labels_may_state_a_workloads_locality():
    assert stated({"istio-locality": "eu.eu-a.1"}) == "eu/eu-a/1"
    assert stated({"topology.kubernetes.io/region": "eu", "topology.kubernetes.io/zone": "eu-a"}) == "eu/eu-a"
    assert stated({"app": "web"}) == ""
