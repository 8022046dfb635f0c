from model.builders import service
from weft.mesh.claims import Claims, patterns, strength
from weft.model.destination_rule import DestinationRule
from weft.model.names import ObjectKey, Origin

HOST = "orders.shop.svc.cluster.local"


def rule(name, host, **more):
    return DestinationRule(name, "shop", host, **more)


def test_the_oldest_claim_comes_first_and_one_of_unknown_age_last():
    claims = Claims()
    young, old, unknown = rule("a", HOST, created="2026"), rule("b", HOST, created="2025"), rule("c", HOST)
    for each in (unknown, young, old):
        claims.add(HOST, each)
    assert list(claims.to(HOST)) == [old, young, unknown]


def test_a_service_has_the_better_claim_than_an_older_service_entry():
    written = service("orders", created="2020", origin=Origin(ObjectKey("ServiceEntry", "shop", "orders")))
    assert strength(service("orders", created="2026")) < strength(written)


def test_a_name_without_claims_is_dropped():
    claims = Claims()
    one, other = rule("a", HOST), rule("b", HOST)
    claims.add(HOST, one)
    claims.add(HOST, other)
    claims.discard(HOST, one)
    assert list(claims) == [other] and list(claims.names()) == [HOST]
    claims.discard(HOST, other)
    assert not claims.names() and not claims.to(HOST)


def test_exact_claims_cover_a_host_before_wildcards_and_long_wildcards_before_short_ones():
    claims = Claims()
    for pattern in ("*", "*.svc.cluster.local", HOST, "*.other.svc.cluster.local"):
        claims.add(pattern, rule(pattern, pattern))
    assert [claim.host for claim in claims.covering(HOST)] == [HOST, "*.svc.cluster.local", "*"]


def test_a_wildcard_is_covered_by_itself_and_by_wider_ones():
    assert patterns("*.example.com") == ("*.example.com", "*.com", "*")
