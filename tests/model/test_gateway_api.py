import pytest

from weft.model.gateway_api import GrantSource, GrantTarget, LabelRequirement, ParentRef, ReferenceGrant, RouteKind

GRANT = ReferenceGrant("x", "bank", (GrantSource("g", "HTTPRoute", "shop"),), (GrantTarget("", "Service", "ledger"),))


@pytest.mark.parametrize(
    ("operator", "values", "holds"),
    [
        ("In", ("b",), True),
        ("In", ("c",), False),
        ("NotIn", ("b",), False),
        ("NotIn", ("c",), True),
        ("Exists", (), True),
        ("DoesNotExist", (), False),
    ],
)
def test_a_requirement_is_for_one_label(operator, values, holds):
    assert LabelRequirement("a", operator, values).holds((("a", "b"),)) is holds


def test_a_label_that_is_not_there_is_in_no_list():
    assert not LabelRequirement("a", "In", ("b",)).holds(())
    assert LabelRequirement("a", "NotIn", ("b",)).holds(())
    assert LabelRequirement("a", "DoesNotExist").holds(())


def test_a_grant_applies_only_to_the_named_sources_and_targets():
    source, target = GRANT.sources[0], GRANT.targets[0]
    assert GRANT.allows(source, target)
    assert not GRANT.allows(GrantSource("g", "GRPCRoute", "shop"), target)
    assert not GRANT.allows(source, GrantTarget("", "Service", "other"))
    assert not GRANT.allows(source, GrantTarget("", "Secret", "ledger"))


def test_a_parent_ref_is_shown_with_kind_and_name():
    assert str(ParentRef("Gateway", "shop", "edge", "https", 443)) == "Gateway shop/edge https 443"
    assert ParentRef("Gateway", "shop", "edge", "https").place == ("Gateway", "shop", "edge")


def test_two_kinds_of_routes_are_http():
    assert [kind.value for kind in RouteKind if kind.is_http] == ["HTTPRoute", "GRPCRoute"]
