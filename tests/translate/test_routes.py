from envoy.config.route.v3.route_pb2 import RouteConfiguration
from msgspec.structs import replace

from translate.views import HOST, origin, route, routing, to, view
from weft.model.service import Protocol
from weft.model.settings import Settings
from weft.model.sidecar import OutboundPolicy
from weft.model.virtual_service import HttpMatch, MatchKind, StringMatch
from weft.translate.routes import configuration, configuration_name, routes, stands_alone, unowned_host, virtual_host

ANY, ONLY = OutboundPolicy.ALLOW_ANY, OutboundPolicy.REGISTRY_ONLY


def _read(built):
    return RouteConfiguration.FromString(built.body)


def _host(seen, settings=Settings()):  # noqa: B008 (a frozen value)
    return virtual_host(seen, seen.ports[0], settings)


def test_joined_fragments_are_one_configuration_with_the_rest_last():
    read = _read(configuration("80", [_host(view()), _host(view(like={"namespace": "sales"}))], ANY))
    assert [host.name for host in read.virtual_hosts][-1] == "allow_any"
    assert (read.name, len(read.virtual_hosts), read.ignore_port_in_host_matching) == ("80", 3, True)
    assert read.HasField("validate_clusters") and not read.validate_clusters.value


def test_with_registry_only_requests_to_unknown_hosts_are_rejected():
    (rest,) = _read(configuration("80", [], ONLY)).virtual_hosts
    assert rest.routes[0].direct_response.status == 502


def test_the_first_claim_to_a_domain_wins():
    first, second = _host(view()), _host(view(like={"addresses": ("10.96.0.9",)}))
    read = _read(configuration("80", [first, second], ANY))
    assert list(read.virtual_hosts[1].domains) == ["10.96.0.9"]
    assert len(_read(configuration("80", [first, first], ANY)).virtual_hosts) == 2


def test_routes_end_with_the_first_that_catches_everything():
    narrow = route(name="narrow", match=(HttpMatch(uri=StringMatch(MatchKind.PREFIX, "/a")),))
    found = routes(view(narrow, route(name="all"), route(name="never"), meshed=(80,)), 80)
    assert [entry.name for entry in found] == ["narrow", "all"]


def test_a_match_is_part_of_its_routes_name():
    found = routes(view(route(name="r", match=(HttpMatch(name="m", port=80, stat_prefix="s"),)), meshed=(80,)), 80)
    assert [(entry.name, entry.stat_prefix) for entry in found] == [("r.m", "s")]


def test_a_virtual_service_with_nothing_for_this_port_leaves_the_service_as_it_is():
    found = routes(view(route(name="other", match=(HttpMatch(port=81),)), meshed=(80,)), 80)
    assert [entry.name for entry in found] == ["default"]


def test_a_routes_metadata_has_its_line_and_a_virtual_hosts_its_objects():
    seen = view(route(line=12), like={"origin": origin("Service", "orders")})
    made = _host(seen)
    (host,) = RouteConfiguration.FromString(made.fragment).virtual_hosts
    (source,) = host.routes[0].metadata.filter_metadata["weft"]["sources"]
    assert (source["line"], source["kind"]) == (12, "VirtualService")
    assert [key.kind for key in made.sources] == ["Service", "VirtualService"]


def test_an_undeclared_port_with_an_address_has_its_own_configuration():
    alone = view(like={"protocol": Protocol.UNDECLARED, "addresses": ("10.96.0.1",)})
    shared = view(like={"protocol": Protocol.UNDECLARED})
    assert stands_alone(alone, alone.ports[0]) and not stands_alone(shared, shared.ports[0])
    assert configuration_name(alone, alone.ports[0]) == f"{HOST}:80" and _host(alone).domains == ("*",)
    assert configuration_name(shared, shared.ports[0]) == "80"


def test_a_host_without_a_service_has_no_default_route():
    seen = replace(view(route(to("stock")), routes=(routing(name="other"),)), service=None, host="shop.example.com")
    made = unowned_host(seen, 80, Settings())
    assert made.domains == ("shop.example.com", "shop.example.com.")
    assert routes(replace(seen, routes=()), 80) == []
