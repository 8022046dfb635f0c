"""Which connections a pod takes in: seen in the chains, and by callers of a real Envoy in test_tls.py."""

import pytest
from envoy.config.listener.v3.listener_pb2 import Listener
from envoy.extensions.filters.network.http_connection_manager.v3.http_connection_manager_pb2 import (
    HttpConnectionManager,
)

from model.builders import group, put, service
from translate.views import origin
from weft.model.authorization_policy import AuthorizationPolicy
from weft.model.group import ProxyKind
from weft.model.inbound_port import InboundPort
from weft.model.mesh import Mesh
from weft.model.peer_authentication import PeerAuthentication, PeerModes, TlsMode
from weft.model.request_authentication import RequestAuthentication
from weft.model.service import Protocol
from weft.model.settings import Settings
from weft.model.sidecar import OutboundPolicy
from weft.translate import guards, inbound
from weft.translate.chains import chain
from weft.translate.inbound import virtual_inbound
from weft.translate.view import GroupView, group_view

STRICT, PERMISSIVE, DISABLE = TlsMode.STRICT, TlsMode.PERMISSIVE, TlsMode.DISABLE
WEB, DATABASE, UNKNOWN = (
    InboundPort(8080, Protocol.HTTP),
    InboundPort(3306, Protocol.MYSQL),
    InboundPort(7000, Protocol.UNDECLARED),
)


def _listener(*ports, mode=PERMISSIVE, modes=()):
    view = GroupView(
        ProxyKind.SIDECAR, ports, OutboundPolicy.ALLOW_ANY, Settings(), modes=PeerModes(mode, tuple(modes))
    )
    return Listener.FromString(virtual_inbound(view).body)


def _chains(listener, number):
    return [entry for entry in listener.filter_chains if entry.filter_chain_match.destination_port.value == number]


def _seen(listener, number):
    """Of each chain: what it matches, what it speaks, whether it is opened here."""
    return [
        (
            entry.filter_chain_match.transport_protocol,
            _protocols(entry.filter_chain_match.application_protocols),
            "http" if entry.filters[-1].name.endswith("http_connection_manager") else "bytes",
            entry.HasField("transport_socket"),
        )
        for entry in _chains(listener, number)
    ]


def _protocols(found):
    named = {
        (): "any",
        inbound.tls.OF_HTTP: "mesh http",
        inbound.tls.OF_BYTES: "mesh bytes",
        inbound.tls.OF_THE_MESH: "mesh",
    }
    return named.get(tuple(found), "detected")


def _disabled(listener, name):
    found = [entry for entry in listener.listener_filters if entry.name.endswith(name)]
    return found[0].filter_disabled if found else None


def _starts(predicate):
    return [rule.destination_port_range.start for rule in predicate.or_match.rules or [predicate]]


def test_by_default_http_comes_in_with_and_without_the_meshs_tls():
    assert _seen(_listener(WEB), 8080) == [("tls", "mesh", "http", True), ("raw_buffer", "any", "http", False)]


def test_by_default_tls_of_the_application_itself_passes_a_tcp_port_unopened():
    assert _seen(_listener(DATABASE), 3306) == [
        ("tls", "mesh", "bytes", True),
        ("raw_buffer", "any", "bytes", False),
        ("tls", "any", "bytes", False),
    ]


def test_an_undeclared_port_tells_five_kinds_apart():
    expected = [
        ("tls", "mesh http", "http", True),
        ("tls", "mesh bytes", "bytes", True),
        ("raw_buffer", "detected", "http", False),
        ("raw_buffer", "any", "bytes", False),
        ("tls", "any", "bytes", False),
    ]
    listener = _listener(UNKNOWN)
    assert _seen(listener, 7000) == expected
    # A chain without a port: the same for every port that nobody names, and for the proxy's own loop none.
    assert _seen(listener, 0) == expected


def test_strict_leaves_no_chain_without_tls_and_no_default():
    listener = _listener(WEB, DATABASE, UNKNOWN, mode=STRICT)
    assert _seen(listener, 8080) == [("tls", "any", "http", True)]
    assert _seen(listener, 3306) == [("tls", "any", "bytes", True)]
    assert _seen(listener, 7000) == [("tls", "mesh http", "http", True), ("tls", "any", "bytes", True)]
    assert _seen(listener, 0) == _seen(listener, 7000)
    assert not listener.HasField("default_filter_chain")


def test_where_all_must_speak_first_the_slow_ones_have_time():
    strict, mixed = _listener(WEB, mode=STRICT), _listener(WEB)
    assert strict.listener_filters_timeout.seconds == 5
    assert mixed.listener_filters_timeout.seconds == 1


def test_disabled_opens_no_tls_and_looks_for_none():
    listener = _listener(WEB, DATABASE, UNKNOWN, mode=DISABLE)
    assert _seen(listener, 8080) == [("", "any", "http", False)]
    assert _seen(listener, 3306) == [("", "any", "bytes", False)]
    assert _seen(listener, 7000) == [("", "detected", "http", False), ("", "any", "bytes", False)]
    assert _disabled(listener, "tls_inspector") is None


def test_a_port_may_differ_from_its_workload():
    listener = _listener(WEB, DATABASE, mode=STRICT, modes=[(8080, DISABLE), (3306, PERMISSIVE)])
    assert _seen(listener, 8080) == [("", "any", "http", False)]
    assert len(_seen(listener, 3306)) == 3
    assert _starts(_disabled(listener, "tls_inspector")) == [8080, 15006]


def test_a_port_that_no_service_names_may_differ_too():
    listener = _listener(WEB, mode=STRICT, modes=[(9000, DISABLE)])
    assert _seen(listener, 9000) == [("", "detected", "http", False), ("", "any", "bytes", False)]
    (cluster,) = {
        b"InboundPassthroughCluster" in entry.filters[0].typed_config.value for entry in _chains(listener, 9000)
    }
    assert cluster


def test_a_strict_port_of_a_disabled_workload_is_the_only_one_looked_into():
    listener = _listener(WEB, DATABASE, mode=DISABLE, modes=[(3306, STRICT)])
    assert _starts(_disabled(listener, "tls_inspector").not_match) == [3306]


def test_a_declared_port_is_not_searched_for_http():
    listener = _listener(DATABASE, UNKNOWN)
    assert _starts(_disabled(listener, "http_inspector")) == [3306, 15006]
    assert _starts(
        _disabled(_listener(UNKNOWN, mode=STRICT, modes=[(7000, PERMISSIVE)]), "http_inspector").not_match
    ) == [7000]
    assert _disabled(_listener(UNKNOWN, mode=STRICT), "http_inspector") is None


def test_the_proxys_own_port_goes_nowhere():
    listener = _listener()
    assert listener.filter_chains[0].name == "virtualInbound-blackhole"
    assert listener.filter_chains[0].filter_chain_match.destination_port.value == 15006
    assert len(_chains(_listener(InboundPort(15006, Protocol.HTTP)), 15006)) == 1


def test_only_a_caller_with_a_certificate_is_named_to_the_workload():
    tls, plain = _chains(_listener(WEB), 8080)
    assert _manager(tls).forward_client_cert_details == HttpConnectionManager.APPEND_FORWARD
    assert _manager(plain).forward_client_cert_details == HttpConnectionManager.SANITIZE


def test_the_guards_stand_in_every_chain_that_leads_to_the_workload(monkeypatch):
    network = chain("", *_listener(DATABASE).filter_chains[0].filters).filters[0]
    network.name = "guard"
    monkeypatch.setattr(inbound, "guards_of", lambda view: guards.Guards(network=(network,), unknown=(network,)))
    for mode in TlsMode:
        for entry in _listener(WEB, DATABASE, UNKNOWN, mode=mode).filter_chains[1:]:
            if entry.filters[-1].name.endswith("tcp_proxy"):
                assert entry.filters[0].name == "guard", entry.name


def test_nobody_holds_a_connection_by_never_ending_a_handshake():
    for entry in _listener(WEB, DATABASE, UNKNOWN).filter_chains:
        assert entry.HasField("transport_socket") is (entry.transport_socket_connect_timeout.seconds == 15)


def test_a_chain_names_the_policies_that_made_it():
    mesh = Mesh()
    put(mesh, PeerAuthentication("default", "shop", mode=STRICT, origin=origin("PeerAuthentication", "default")))
    listener = Listener.FromString(virtual_inbound(group_view(mesh, group("orders"))).body)
    for entry in listener.filter_chains[1:]:
        (source,) = entry.metadata.filter_metadata["weft"]["sources"]
        assert (source["kind"], source["name"]) == ("PeerAuthentication", "default")


def test_a_listener_that_is_refused_is_the_problem_of_every_policy_in_it():
    mesh = Mesh()
    put(
        mesh,
        AuthorizationPolicy("callers", "shop", origin=origin("AuthorizationPolicy", "callers")),
        RequestAuthentication("tokens", "shop", origin=origin("RequestAuthentication", "tokens")),
    )
    sources = virtual_inbound(group_view(mesh, group("orders"))).sources
    assert [key.name for key in sources] == ["callers", "tokens"]


@pytest.mark.parametrize("protocol", [Protocol.HTTP, Protocol.TCP, Protocol.UNDECLARED])
def test_a_way_in_is_the_same_whoever_else_shares_it(protocol):
    """Envoy ends connections whose chain is another, in whatever."""
    orders, more = (service(name, origin=origin("Service", name)) for name in ("orders", "more"))
    found = [_listener(InboundPort(8080, protocol, services=each)) for each in ((orders,), (orders, more), (more,))]
    assert found[0] == found[1] == found[2]


def _manager(entry):
    return HttpConnectionManager.FromString(entry.filters[0].typed_config.value)
