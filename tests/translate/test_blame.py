from envoy.config.route.v3.route_components_pb2 import Route
from envoy.config.route.v3.route_components_pb2 import VirtualHost as EnvoyVirtualHost
from envoy.config.route.v3.route_pb2 import RouteConfiguration

from weft.translate.blame import put_back
from weft.translate.contribution import VirtualHost


def host(name, path, domains=("a",)):
    route = Route()
    route.match.prefix = path
    message = EnvoyVirtualHost(name=name, routes=[route], domains=domains)
    fragment = RouteConfiguration(virtual_hosts=[message]).SerializeToString(deterministic=True)
    return VirtualHost(name, fragment, (), tuple(domains), frozenset(domains))


def accepted(*hosts):
    return b"".join(host.fragment for host in hosts)


def test_a_host_with_changed_routes_gets_its_accepted_version():
    before, after, other = host("orders", "/a"), host("orders", "/b"), host("cart", "/")
    found = put_back([("orders", after), ("cart", other)], accepted(before, other))
    assert {name: made.fragment for name, made in found.items()} == {"orders": before.fragment}


def test_a_host_that_was_never_accepted_is_left_out():
    assert put_back([("orders", host("orders", "/"))], b"") == {"orders": None}


def test_a_domain_lost_to_another_host_is_no_reason_to_suspect():
    assert put_back([("orders", host("orders", "/", ("a", "b")))], accepted(host("orders", "/", ("a",)))) == {}
