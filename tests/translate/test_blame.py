from __future__ import annotations

from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.route.v3.route_components_pb2 import Route, VirtualHost
from envoy.config.route.v3.route_pb2 import RouteConfiguration

from weft.model.names import ObjectKey, Origin
from weft.translate.blame import suspects
from weft.translate.built import build
from weft.translate.provenance import of_route

ORDERS = ObjectKey("VirtualService", "shop", "orders")
PAYMENTS = ObjectKey("VirtualService", "shop", "payments")


def route(key, path):
    made = Route(metadata=of_route((Origin(key),)))
    made.match.prefix = path
    return made


def configuration(*hosts):
    return build("80", RouteConfiguration(virtual_hosts=hosts), (ORDERS, PAYMENTS))


def host(name, *routes):
    return VirtualHost(name=name, routes=routes)


def test_only_objects_behind_new_routes_are_suspects():
    before = configuration(host("orders", route(ORDERS, "/a")), host("payments", route(PAYMENTS, "/")))
    after = configuration(host("orders", route(ORDERS, "/b")), host("payments", route(PAYMENTS, "/")))
    assert suspects(after, before.body) == (ORDERS,)


def test_the_same_route_under_another_host_is_new():
    before = configuration(host("orders", route(ORDERS, "/")))
    after = configuration(host("orders", route(ORDERS, "/")), host("other", route(ORDERS, "/")))
    assert suspects(after, before.body) == (ORDERS,)


def test_everybody_is_a_suspect_where_nothing_was_accepted_or_no_route_is_new():
    made = configuration(host("orders", route(ORDERS, "/a")), host("payments", route(PAYMENTS, "/")))
    assert suspects(made, b"") == (ORDERS, PAYMENTS)
    assert suspects(made, made.body) == (ORDERS, PAYMENTS)


def test_a_resource_of_another_type_has_only_its_own_objects():
    assert suspects(build("x", Cluster(name="x"), (PAYMENTS,)), b"") == (PAYMENTS,)
