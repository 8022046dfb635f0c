from weft.explain.decision import Explanation, Kind, ObjectSource, Outcome, Verdict, policy_source, sources_of
from weft.model.names import ObjectKey, Origin
from weft.translate.provenance import of_objects, of_route


def test_sources_in_metadata_are_read_with_file_and_line():
    origin = Origin(ObjectKey("VirtualService", "shop", "orders"), "v1", "mesh.yaml", 7)
    assert [str(each) for each in sources_of(of_route((origin,), 12))] == ["VirtualService shop/orders (mesh.yaml:12)"]
    assert [str(each) for each in sources_of(of_objects((origin.key,)))] == ["VirtualService shop/orders"]
    assert sources_of(of_objects(())) == ()


def test_the_policy_is_found_from_the_rule_name():
    assert policy_source("ns[shop]-policy[orders]-rule[2]") == (
        ObjectSource("AuthorizationPolicy", "shop", "orders", part="rule[2]"),
    )
    assert policy_source("weft-disguised-path") == ()
    assert policy_source("refused RequestAuthentication shop/tokens") == (
        ObjectSource("RequestAuthentication", "shop", "tokens"),
    )


def test_an_explanation_is_certain_with_one_known_outcome():
    sure = Outcome(1.0, (), Verdict(Kind.DELIVERED, ""))
    assert Explanation((sure,)).certain and Explanation((sure,)).verdict is sure.verdict
    assert not Explanation((sure, sure)).certain
    assert not Explanation((Outcome(1.0, (), Verdict(Kind.UNKNOWN, "")),)).certain


def test_an_object_is_named_with_its_place_or_its_version():
    named = ObjectSource("Service", "shop", "web")
    assert str(named) == "Service shop/web"
    assert str(ObjectSource("Service", "shop", "web", "web.yaml", 3)) == "Service shop/web (web.yaml:3)"
    assert str(ObjectSource("Service", "shop", "web", version="417")) == "Service shop/web (version 417)"
