"""Which servers a gateway proxy has, and under which names it answers with whose routes."""

import pytest

from weft.mesh.gateways import Gateways, bound, edge, references
from weft.model.gateway import Gateway, GatewayServer, ServerTls, ServerTlsMode
from weft.model.group import Group, ProxyKind
from weft.model.names import CredentialRef, labels_of
from weft.model.service import Protocol, ServicePort
from weft.model.virtual_service import Destination, HttpMatch, HttpRoute, VirtualService, WeightedDestination

GROUP = Group(ProxyKind.GATEWAY, "edge", labels_of({"istio": "ingress"}))
SIMPLE = ServerTls(ServerTlsMode.SIMPLE, credentials=(CredentialRef("c"),))


def server(*hosts, port=80, protocol=Protocol.HTTP, tls=None, name=""):
    return GatewayServer(ServicePort(port, name or str(protocol), protocol), hosts, tls=tls)


def gateway(*servers, name="public", namespace="edge", **more):
    return Gateway(name, namespace, servers, **more)


def routing(*hosts, name="a", namespace="shop", to="web", gateways=("edge/public",), **more):
    route = HttpRoute(route=(WeightedDestination(Destination(to)),), **more)
    return VirtualService(name, namespace, hosts, gateways, http=(route,))


def served(servers, *routings):
    return edge(
        servers,
        lambda name: [each for each in routings if name in each.gateways],
        lambda each: [weighted.destination.host for route in each.http for weighted in route.route],
    )


def unmapped(number):
    return ()


def test_gateways_select_proxies_of_any_namespace_unless_limited_to_one():
    index = Gateways()
    assert not index
    chosen = gateway(selector=labels_of({"istio": "ingress"}), namespace="shop")
    for each in (
        chosen,
        gateway(name="other", selector=labels_of({"istio": "egress"})),
        gateway(name="all", created="2020"),
        gateway(name="within", within="shop"),
    ):
        index.add(each)
    assert [each.name for each in index.of(GROUP)] == ["all", "public"]
    index.remove(chosen)
    assert [each.name for each in index.of(GROUP)] == ["all"]


def test_a_server_listens_on_the_target_port_of_its_service():
    made = gateway(server("*"), server("*", port=81))
    found = bound([made], lambda number: (8080, 9080) if number == 80 else ())
    assert [(each.server.port.number, each.listens) for each in found] == [(80, 8080), (80, 9080), (81, 81)]
    assert [each.route_name for each in found] == ["http.8080", "http.9080", "http.81"]


def test_a_port_has_the_protocol_of_its_oldest_server_and_a_tls_name_has_one_owner():
    first = gateway(server("a.com", port=443, protocol=Protocol.HTTPS, tls=SIMPLE, name="first"))
    second = gateway(
        server("a.com", "b.com", port=443, protocol=Protocol.HTTPS, tls=SIMPLE, name="second"),
        server("c.com", port=443, name="plain"),
        server("own.com", port=15021, name="own"),
        name="later",
    )
    found = bound([first, second], unmapped)
    assert [(each.server.port.name, [host.host for host in each.hosts]) for each in found] == [
        ("first", ["a.com"]),
        ("second", ["b.com"]),
    ]
    assert found[1].route_name == "https.443.second.later.edge"


def test_a_name_with_a_dot_at_its_end_is_the_same_name():
    made = gateway(server("a.com.", "./*.B.com.", port=443, protocol=Protocol.HTTPS, tls=SIMPLE))
    (found,) = bound([made], unmapped)
    assert [(each.namespace, each.host) for each in found.hosts] == [("*", "a.com"), ("edge", "*.b.com")]


def test_a_tcp_port_has_one_server():
    tcp = {"port": 5432, "protocol": Protocol.TCP}
    found = bound([gateway(server("a.com", **tcp), server("b.com", name="b", **tcp))], unmapped)
    assert [[host.host for host in each.hosts] for each in found] == [["a.com"]]


@pytest.mark.parametrize(
    ("host", "routed", "domains"),
    [
        ("*", "a.com", {"a.com"}),
        ("a.com", "*", {"a.com"}),
        ("*.a.com", "x.a.com", {"x.a.com"}),
        ("x.a.com", "*.a.com", {"x.a.com"}),
        ("a.com", "b.com", set()),
        ("shop/a.com", "a.com", {"a.com"}),
        ("./a.com", "a.com", set()),
        ("*/a.com", "a.com", {"a.com"}),
        ("A.com", "a.com", {"a.com"}),
    ],
)
def test_the_domains_are_the_intersection_of_server_and_virtual_service_hosts(host, routed, domains):
    assert served(bound([gateway(server(host))], unmapped), routing(routed)).doors.keys() == domains


def test_the_most_specific_host_decides_and_equal_ones_are_merged():
    routings = (routing("*", to="any"), routing("a.com", name="b", to="one"), routing("a.com", name="c", to="two"))
    found = served(bound([gateway(server("*"))], unmapped), *routings)
    assert {name: [each.name for door in doors for each in door.routes] for name, doors in found.doors.items()} == {
        "*": ["a"],
        "a.com": ["b", "c"],
    }
    assert found.destinations == {"any", "one", "two"}
    assert found.hosts == {"*", "a.com", "any", "one", "two"}


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("a.com", {"a.com": ["a", "c"]}),  # both have it there
        ("*.com", {"*.com": ["a"], "a.com": ["c"]}),  # the narrower has a name of its own
        ("*", {"*": ["a"], "a.com": ["c"]}),
    ],
)
def test_a_wider_virtual_service_is_merged_where_the_server_has_the_name_itself(host, expected):
    routings = (routing("*", to="any"), routing("a.com", name="c", to="one"))
    for written in (routings, reversed(routings)):
        found = served(bound([gateway(server(host))], unmapped), *written)
        assert {name: [each.name for door in doors for each in door.routes] for name, doors in found.doors.items()} == (
            expected
        )


def test_routes_and_matches_for_other_gateways_are_left_out():
    away = routing("a.com", to="away", match=(HttpMatch(gateways=("mesh",)),))
    here = routing(
        "a.com", name="b", to="here", match=(HttpMatch(gateways=("mesh",)), HttpMatch(gateways=("edge/public",)))
    )
    found = served(bound([gateway(server("*"))], unmapped), away, here)
    assert found.destinations == {"here"}
    assert [len(route.match) for each in found.doors["a.com"][0].routes for route in each.http] == [1]


def test_a_redirect_to_https_needs_no_routes():
    (door,) = served(bound([gateway(server("a.com", tls=ServerTls(https_redirect=True)))], unmapped)).doors["a.com"]
    assert (door.redirects, door.routes, door.port) == (True, (), 80)


def test_a_server_that_redirects_to_https_does_not_redirect_names_of_other_servers():
    all_of_them = gateway(server("*", tls=ServerTls(https_redirect=True)))
    own = gateway(server("challenge.example.com"), name="own")
    servers = bound([all_of_them, own], unmapped)
    doors = served(servers, routing("challenge.example.com", gateways=("edge/own",))).doors
    assert (doors["*"][0].redirects, doors["challenge.example.com"][0].redirects) == (True, False)
    both = served(servers, routing("challenge.example.com", gateways=("edge/own", "edge/public"))).doors
    assert both["challenge.example.com"][0].redirects


def test_a_name_of_a_more_specific_server_is_misdirected_at_a_wider_one():
    https = {"port": 443, "protocol": Protocol.HTTPS, "tls": SIMPLE}
    servers = bound(
        [gateway(server("*.a.com", name="wide", **https), server("x.a.com", name="near", **https))], unmapped
    )
    found = served(servers, routing("*.a.com"))
    assert {
        (door.route_name.split(".")[2], name, door.misdirected) for name, doors in found.doors.items() for door in doors
    } == {
        ("wide", "*.a.com", False),
        ("wide", "x.a.com", True),
        ("near", "x.a.com", False),
        ("near", "*.a.com", True),
    }


def misdirecting(*hosts, routed):
    """For each server, by its host: the names that it has heard of, and whether they are another's."""
    https = {"port": 443, "protocol": Protocol.HTTPS, "tls": SIMPLE}
    found = served(bound([gateway(*(server(host, name=host, **https) for host in hosts))], unmapped), routing(*routed))
    told = {host: {} for host in hosts}
    for name, doors in found.doors.items():
        for door in doors:
            told[door.route_name.removeprefix("https.443.").removesuffix(".public.edge")][name] = door.misdirected
    return told


def test_requests_for_names_of_other_servers_are_misdirected():
    told = misdirecting("a.com", "b.com", routed=["a.com", "b.com"])
    assert told == {"a.com": {"a.com": False, "b.com": True}, "b.com": {"a.com": True, "b.com": False}}


def test_a_servers_own_name_without_routes_is_not_misdirected():
    told = misdirecting("x.a.com", "*.a.com", routed=["*.a.com"])
    assert told["x.a.com"] == {"x.a.com": False, "*.a.com": True}
    assert misdirecting("x.a.com", "*", routed=["b.com"])["x.a.com"] == {"x.a.com": False, "*": True}


def test_with_very_many_names_only_those_that_own_wildcards_cover_are_listed():
    many = [f"n{number}.a.com" for number in range(51)]
    told = misdirecting(*many, "*.b.com", "x.b.com", routed=[*many, "*.b.com"])
    assert told["n0.a.com"] == {"n0.a.com": False}
    assert told["*.b.com"] == {"*.b.com": False, "x.b.com": True}


def test_the_references_of_a_server_are_its_secrets_by_name():
    assert references(None) == ()
    assert references(SIMPLE) == (CredentialRef("c"),)  # whom to trust is asked only where callers are
    mutual = ServerTls(ServerTlsMode.MUTUAL, credentials=(CredentialRef("c", "certs"),))
    assert references(mutual) == (CredentialRef("c", "certs"), CredentialRef("c-cacert", "certs"))
