from envoy.config.route.v3.route_pb2 import RouteConfiguration

from weft.model.edge import ServedName
from weft.model.group import ProxyKind
from weft.model.names import ObjectKey, Origin
from weft.model.virtual_service import Destination, HttpRoute, VirtualService, WeightedDestination
from weft.translate.gateway_routes import virtual_host
from weft.translate.view import CallerView, ServiceView

ROUTING = VirtualService(
    "a",
    "shop",
    ("a.com",),
    ("edge/public",),
    http=(HttpRoute(route=(WeightedDestination(Destination("web", port=80)),)),),
    origin=Origin(ObjectKey("VirtualService", "shop", "a")),
)


def made(host="a.com", **door):
    found = ServedName("http.80", 80, ("edge/public",), **door)
    built = virtual_host(ServiceView(host, CallerView(ProxyKind.GATEWAY), doors=(found,)), found)
    (message,) = RouteConfiguration.FromString(built.fragment).virtual_hosts
    return built, message


def test_a_host_is_served_with_and_without_a_trailing_dot():
    assert tuple(made()[1].domains) == made()[0].domains == ("a.com", "a.com.")
    assert made("*.a.com")[0].domains == ("*.a.com", "*.a.com.")
    assert made("*")[0].domains == ("*",)


def test_a_virtual_host_has_only_the_routes_of_its_server_with_their_sources():
    built, host = made(routes=(ROUTING,))
    assert [route.route.cluster for route in host.routes] == ["outbound|80||web"]
    assert built.sources == (ROUTING.origin.key,)
    assert made()[1].routes == []


def test_a_redirect_is_for_the_whole_host_and_another_servers_name_is_misdirected():
    assert made(redirects=True)[1].require_tls == 2
    (route,) = made(misdirected=True)[1].routes
    assert route.direct_response.status == 421
