import msgspec
import pytest

from model.builders import group, put, service
from weft.mesh.claims import Claims, patterns, strength
from weft.mesh.mesh import Mesh
from weft.model.destination_rule import DestinationRule
from weft.model.names import ObjectKey, Origin
from weft.model.scope import Scope
from weft.model.service import Service, ServicePort
from weft.model.virtual_service import VirtualService

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


API = "api.example.com"
# Objects for one host, as (namespace, exportTo, created), and the namespace of the one that callers in `shop` use.
PRECEDENCE = {
    "private before exported and public, whatever the age": (
        ("shop", (".",), "2026-03"),
        ("near", ("shop",), "2026-02"),
        ("far", ("*",), "2026-01"),
        "shop",
    ),
    "its own namespace by name is private, too": (("shop", ("shop",), "2026-02"), ("far", (), "2026-01"), "shop"),
    "exported by name before public": (("near", ("shop",), "2026-02"), ("far", (), "2026-01"), "near"),
    "private before exported by name": (("shop", (".", "x"), "2026-02"), ("near", ("shop",), "2026-01"), "shop"),
    "exported by name to others does not count": (("near", ("x",), "2026-01"), ("far", (), "2026-02"), "far"),
    "the oldest of those exported by name": (("b", ("shop",), "2026-01"), ("a", ("shop",), "2026-02"), "b"),
    "the oldest of the public ones": (("b", (), "2026-01"), ("a", ("*",), "2026-02"), "b"),
}


@pytest.mark.parametrize("case", PRECEDENCE)
@pytest.mark.parametrize("order", (1, -1))
def test_exports_decide_between_virtual_services_before_age(case, order):
    *objects, expected = PRECEDENCE[case]
    mesh = Mesh()
    for namespace, export_to, created in objects[::order]:
        put(mesh, VirtualService("api", namespace, (API,), export_to=export_to, created=created))
    assert mesh.virtual_services(API, Scope("shop"))[0].namespace == expected


@pytest.mark.parametrize("case", PRECEDENCE)
@pytest.mark.parametrize("order", (1, -1))
def test_exports_decide_between_service_entries_before_age(case, order):
    *objects, expected = PRECEDENCE[case]
    mesh = Mesh()
    for claim in objects[::order]:
        put(mesh, entry(*claim))
    assert mesh.service(API, Scope("shop")).namespace == expected


def test_a_public_service_entry_of_the_own_namespace_comes_before_older_public_ones():
    mesh = Mesh()
    put(mesh, entry("shop", (), "2026-02"), entry("far", (), "2026-01"))
    assert mesh.service(API, Scope("shop")).namespace == "shop"
    assert mesh.service(API, Scope("elsewhere")).namespace == "far"


def test_a_service_comes_before_a_private_service_entry():
    mesh = Mesh()
    put(mesh, service("orders", "far", created="2026-02"))
    host = "orders.far.svc.cluster.local"
    put(mesh, msgspec.structs.replace(entry("shop", (".",), "2026-01"), host=host))
    assert mesh.service(host, Scope("shop")).namespace == "far"


@pytest.mark.parametrize(
    ("owners", "expected"),
    (
        (("shop", "far", "istio-system"), "shop"),  # the caller's namespace, the service's, the root
        (("far", "istio-system"), "far"),
        (("istio-system",), "istio-system"),
        (("elsewhere",), None),  # no other namespace's rule applies, however it is exported
    ),
)
def test_the_callers_destination_rule_comes_before_the_services_and_the_roots(owners, expected):
    mesh = Mesh()
    put(mesh, service("orders", "far"))
    host = "orders.far.svc.cluster.local"
    for created, owner in enumerate(reversed(owners)):
        put(mesh, DestinationRule("orders", owner, host, created=f"2026-0{created + 1}"))
    chosen = mesh.destination_rule(host, mesh.service(host, Scope("shop")), group("web"))
    assert (chosen.namespace if chosen else None) == expected


def entry(namespace, export_to, created):
    origin = Origin(ObjectKey("ServiceEntry", namespace, "api"))
    ports = (ServicePort(80),)
    return Service(API, "api", namespace, ports, created=created, export_to=export_to, origin=origin)
