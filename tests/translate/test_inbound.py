from envoy.config.listener.v3.listener_pb2 import Listener

from model.builders import service
from translate.views import origin
from weft.model.group import ProxyKind
from weft.model.mesh import InboundPort
from weft.model.service import Protocol
from weft.model.settings import Settings
from weft.model.sidecar import OutboundPolicy
from weft.translate.inbound import virtual_inbound
from weft.translate.view import GroupView


def _listener(*ports):
    view = GroupView(ProxyKind.SIDECAR, ports, OutboundPolicy.ALLOW_ANY, Settings())
    return Listener.FromString(virtual_inbound(view).body)


def _chains(listener, number):
    return [entry for entry in listener.filter_chains if entry.filter_chain_match.destination_port.value == number]


def _kinds(chains):
    return [
        (entry.filters[0].name.rsplit(".", 1)[1], bool(entry.filter_chain_match.application_protocols))
        for entry in chains
    ]


def test_each_port_has_the_chain_of_its_protocol():
    listener = _listener(
        InboundPort(8080, Protocol.HTTP), InboundPort(3306, Protocol.MYSQL), InboundPort(7000, Protocol.UNDECLARED)
    )
    assert _kinds(_chains(listener, 8080)) == [("http_connection_manager", False)]
    assert _kinds(_chains(listener, 3306)) == [("tcp_proxy", False)]
    assert _kinds(_chains(listener, 7000)) == [("http_connection_manager", True), ("tcp_proxy", False)]


def test_a_declared_port_is_not_looked_into():
    listener = _listener(InboundPort(3306, Protocol.MYSQL), InboundPort(7000, Protocol.UNDECLARED))
    inspector = listener.listener_filters[1]
    starts = [rule.destination_port_range.start for rule in inspector.filter_disabled.or_match.rules]
    assert starts == [3306, 15006]


def test_other_ports_pass_and_the_proxys_own_goes_nowhere():
    listener = _listener()
    assert [entry.name for entry in listener.filter_chains] == [
        "virtualInbound-blackhole",
        "virtualInbound-catchall-http",
    ]
    assert listener.default_filter_chain.filters[0].name == "envoy.filters.network.tcp_proxy"
    assert listener.listener_filters[1].filter_disabled.destination_port_range.start == 15006


def test_a_port_that_is_the_proxys_own_does_not_break_the_listener():
    assert len(_chains(_listener(InboundPort(15006, Protocol.HTTP)), 15006)) == 1


def test_a_chain_names_the_services_behind_it():
    listener = _listener(
        InboundPort(8080, Protocol.HTTP, services=(service("orders", origin=origin("Service", "orders")),))
    )
    (chain,) = _chains(listener, 8080)
    assert chain.metadata.filter_metadata["weft"]["sources"][0]["name"] == "orders"
