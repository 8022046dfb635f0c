from msgspec.structs import replace

from translate.views import HOST, route, to, view
from weft.model.group import ProxyKind
from weft.model.service import Protocol
from weft.model.settings import Settings
from weft.model.sidecar import OutboundPolicy
from weft.model.virtual_service import HttpMatch
from weft.translate.contribution import EVERY_ROUTE
from weft.translate.service import base, contribute
from weft.translate.view import GroupView


def _group(kind=ProxyKind.SIDECAR):
    return GroupView(kind, (), OutboundPolicy.ALLOW_ANY, Settings())


def test_an_http_service_adds_a_cluster_and_a_virtual_host():
    made = contribute(view(), Settings())
    assert [built.name for built in made.clusters] == [f"outbound|80||{HOST}"]
    assert [name for name, _ in made.hosts] == ["80"] and not made.listeners


def test_equal_views_give_equal_bytes():
    one, same = contribute(view(route()), Settings()), contribute(view(route()), Settings())
    assert one.clusters[0].version == same.clusters[0].version
    assert one.hosts[0][1].fragment == same.hosts[0][1].fragment


def test_an_undeclared_service_has_its_own_listener_and_routes():
    made = contribute(view(like={"protocol": Protocol.UNDECLARED, "addresses": ("10.96.0.1",)}), Settings())
    assert [built.name for built in made.listeners] == ["10.96.0.1_80"]
    assert [name for name, _ in made.hosts] == [f"{HOST}:80"]


def test_udp_ports_add_nothing():
    assert not contribute(view(like={"protocol": Protocol.UDP}), Settings()).clusters


def test_the_proxys_own_ports_cannot_be_shared():
    made = contribute(view(like={"port": 15090}), Settings())
    assert made.clusters and not made.hosts and not made.listeners


def test_an_http_port_with_the_number_of_a_proxy_port_is_matched_by_the_services_address():
    made = contribute(view(like={"port": 15090, "addresses": ("10.96.0.1",)}), Settings())
    assert [built.name for built in made.listeners] == ["10.96.0.1_15090"]
    assert [name for name, _ in made.hosts] == [f"{HOST}:15090"]


def test_a_host_without_a_service_has_virtual_hosts_on_every_port():
    seen = replace(view(route(to("stock"))), service=None, ports=(), host="shop.example.com")
    assert [name for name, _ in contribute(seen, Settings()).hosts] == [EVERY_ROUTE]
    ported = replace(
        view(route(to("stock"), match=(HttpMatch(port=8080),))), service=None, ports=(), host="a.example.com"
    )
    assert [name for name, _ in contribute(ported, Settings()).hosts] == ["8080", EVERY_ROUTE]


def test_a_group_has_inbound_and_outbound_listeners():
    made = base(_group())
    assert [built.name for built in made.listeners] == ["virtualOutbound", "virtualInbound"]
    assert len(made.clusters) == 3


def test_the_base_config_of_a_grpc_client_has_no_listeners():
    assert not base(_group(ProxyKind.GRPC)).listeners
    assert contribute(view(kind=ProxyKind.GRPC), Settings()).listeners
