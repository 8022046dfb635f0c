from tests.inspect.reasons.told import mesh_of
from tests.inspect.test_stage import DENY

from model.builders import group, service
from weft.explain.decision import ObjectSource
from weft.inspect.reasons import rules
from weft.inspect.reasons.part import Ground, placed, sources
from weft.model.names import ObjectKey, Origin

RULE = Origin(ObjectKey("DestinationRule", "shop", "payments"), "abc", "rule.yaml", 3)


def test_sources_are_unique_and_the_first_has_part_and_line():
    other = Origin(ObjectKey("Service", "shop", "payments"), "v7")
    assert list(map(str, sources(RULE, None, other, RULE, line=9, part="subsets[v1]"))) == [
        "DestinationRule shop/payments subsets[v1] (rule.yaml:9)",
        "Service shop/payments (version v7)",
    ]


def test_placed_adds_the_line_of_the_object_or_policy_rule():
    mesh = mesh_of(deny=DENY)
    policy = ObjectSource("AuthorizationPolicy", "shop", "only-orders", part="rule[0]")
    assert str(placed(mesh, policy)) == "AuthorizationPolicy shop/only-orders rule[0] (deny.yaml:7)"
    assert str(placed(mesh, ObjectSource("Service", "shop", "payments"))) == "Service shop/payments (service.yaml:2)"
    assert str(placed(mesh, ObjectSource("Service", "shop", "gone"))) == "Service shop/gone"


def test_on_a_cluster_an_object_is_named_with_the_version_that_it_has_there():
    mesh = mesh_of()
    key = ObjectKey("Service", "shop", "elsewhere")
    mesh.apply(key, (service("elsewhere", origin=Origin(key, "digest")),))
    assert str(placed(mesh, ObjectSource("Service", "shop", "elsewhere"))) == "Service shop/elsewhere (version digest)"
    mesh.revisions[key] = "417"
    assert str(placed(mesh, ObjectSource("Service", "shop", "elsewhere"))) == "Service shop/elsewhere (version 417)"


def test_calls_to_unknown_hosts_are_allowed_by_default():
    assert Ground(mesh_of(), group("orders")).outbound() == ((), (rules.OUTBOUND_ALLOW_ANY,))
