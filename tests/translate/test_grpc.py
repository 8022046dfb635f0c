from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.listener.v3.listener_pb2 import Listener
from envoy.config.route.v3.route_pb2 import RouteConfiguration
from envoy.extensions.filters.network.http_connection_manager.v3.http_connection_manager_pb2 import (
    HttpConnectionManager,
)

from translate.views import HOST, route, view
from weft.model.destination_rule import DestinationRule, Subset
from weft.model.group import ProxyKind
from weft.model.service import Protocol, Resolution
from weft.model.settings import Settings
from weft.model.virtual_service import CorsPolicy
from weft.translate.grpc import contribute


def _made(*http, **more):
    return contribute(view(*http, kind=ProxyKind.GRPC, **more), Settings())


def test_a_target_may_be_any_name_of_the_service_with_its_port():
    made = _made(like={"protocol": Protocol.GRPC})
    names = {built.name for built in made.listeners}
    assert {f"{HOST}:80", "orders.shop:80", "orders.shop.svc:80", "orders:80"} <= names
    manager = HttpConnectionManager()
    Listener.FromString(made.listeners[0].body).api_listener.api_listener.Unpack(manager)
    assert manager.rds.route_config_name == f"{HOST}:80"
    assert manager.http_filters[-1].name == "envoy.filters.http.router"


def test_clusters_use_only_balancers_that_the_client_knows():
    rule = DestinationRule("r", "shop", HOST, subsets=(Subset("v1"),))
    found = [Cluster.FromString(built.body) for built in _made(rule=rule).clusters]
    assert [cluster.name for cluster in found] == [f"outbound|80||{HOST}", f"outbound|80|v1|{HOST}"]
    assert {cluster.lb_policy for cluster in found} == {Cluster.ROUND_ROBIN}
    assert {cluster.type for cluster in found} == {Cluster.EDS}


def test_a_filter_that_the_client_does_not_have_is_not_configured():
    ((name, host),) = _made(route(cors=CorsPolicy())).hosts
    (made,) = RouteConfiguration.FromString(host.fragment).virtual_hosts
    assert name == f"{HOST}:80" and not made.routes[0].typed_per_filter_config
    assert list(made.domains) == ["*"]


def test_what_the_client_cannot_resolve_is_left_out():
    assert not _made(like={"resolution": Resolution.NONE}).clusters
    assert not _made(like={"protocol": Protocol.TCP}).clusters
