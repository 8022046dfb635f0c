"""The inbound connections that a pod accepts, by the filter chains; test_tls.py tests them with a real Envoy."""

import pytest
from envoy.config.listener.v3.listener_pb2 import Listener
from envoy.extensions.filters.network.http_connection_manager.v3.http_connection_manager_pb2 import (
    HttpConnectionManager,
)

from model.builders import group, put, service
from translate.views import origin
from weft.mesh.mesh import Mesh
from weft.model.authorization_policy import AuthorizationPolicy
from weft.model.group import ProxyKind
from weft.model.inbound_port import InboundPort
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
    """For each chain: its match, its protocol, and whether it terminates TLS."""
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
        inbound.tls.OF_HTTP1: "mesh http1",
        ("istio-h2",): "mesh http2",
        (*inbound.tls.OF_BYTES[::-1], "istio-h2"): "mesh but http1",
        inbound.tls.OF_BYTES: "mesh bytes",
        inbound.tls.OF_THE_MESH: "mesh",
    }
    return named.get(tuple(found), "detected")


def _disabled(listener, name):
    found = [entry for entry in listener.listener_filters if entry.name.endswith(name)]
    return found[0].filter_disabled if found else None


def _starts(predicate):
    return [rule.destination_port_range.start for rule in predicate.or_match.rules or [predicate]]


def test_by_default_http_is_accepted_with_and_without_mutual_tls():
    assert _seen(_listener(WEB), 8080) == [("tls", "mesh", "http", True), ("raw_buffer", "any", "http", False)]


def test_by_default_a_tcp_port_passes_the_applications_own_tls_through():
    assert _seen(_listener(DATABASE), 3306) == [
        ("tls", "mesh", "bytes", True),
        ("raw_buffer", "any", "bytes", False),
        ("tls", "any", "bytes", False),
    ]


def test_an_undeclared_port_distinguishes_five_kinds_of_connections():
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


def test_strict_listeners_wait_longer_for_the_first_bytes():
    strict, mixed = _listener(WEB, mode=STRICT), _listener(WEB)
    assert strict.listener_filters_timeout.seconds == 5
    assert mixed.listener_filters_timeout.seconds == 1


def test_disable_terminates_no_tls_and_has_no_tls_inspector():
    listener = _listener(WEB, DATABASE, UNKNOWN, mode=DISABLE)
    assert _seen(listener, 8080) == [("", "any", "http", False)]
    assert _seen(listener, 3306) == [("", "any", "bytes", False)]
    assert _seen(listener, 7000) == [("", "detected", "http", False), ("", "any", "bytes", False)]
    assert _disabled(listener, "tls_inspector") is None


def test_a_port_may_have_another_mode_than_its_workload():
    listener = _listener(WEB, DATABASE, mode=STRICT, modes=[(8080, DISABLE), (3306, PERMISSIVE)])
    assert _seen(listener, 8080) == [("", "any", "http", False)]
    assert len(_seen(listener, 3306)) == 3
    assert _starts(_disabled(listener, "tls_inspector")) == [8080, 15006]


def test_a_port_without_a_service_may_have_its_own_mode():
    listener = _listener(WEB, mode=STRICT, modes=[(9000, DISABLE)])
    assert _seen(listener, 9000) == [("", "detected", "http", False), ("", "any", "bytes", False)]
    (cluster,) = {
        b"InboundPassthroughCluster" in entry.filters[0].typed_config.value for entry in _chains(listener, 9000)
    }
    assert cluster


def test_the_tls_inspector_runs_only_for_the_strict_port_of_a_disabled_workload():
    listener = _listener(WEB, DATABASE, mode=DISABLE, modes=[(3306, STRICT)])
    assert _starts(_disabled(listener, "tls_inspector").not_match) == [3306]


def test_a_declared_port_has_no_http_inspector():
    listener = _listener(DATABASE, UNKNOWN)
    assert _starts(_disabled(listener, "http_inspector")) == [3306, 15006]
    assert _starts(
        _disabled(_listener(UNKNOWN, mode=STRICT, modes=[(7000, PERMISSIVE)]), "http_inspector").not_match
    ) == [7000]
    assert _disabled(_listener(UNKNOWN, mode=STRICT), "http_inspector") is None


HTTP, TCP, UNSAID = Protocol.HTTP, Protocol.TCP, Protocol.UNDECLARED
PLAIN_BYTES = [("raw_buffer", "any", "bytes", False), ("tls", "any", "bytes", False)]
BOTH = [("tls", "mesh http", "http", True), ("tls", "mesh bytes", "bytes", True)]
BOTH_WAYS = [("tls", "mesh http1", "http", True), ("tls", "mesh http2", "http", True), BOTH[1]]


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ((TCP, HTTP), [*BOTH, *PLAIN_BYTES]),
        ((HTTP, TCP), [*BOTH, ("raw_buffer", "detected", "http", False), *PLAIN_BYTES]),
        ((UNSAID, HTTP), [*BOTH_WAYS, ("raw_buffer", "detected", "http", False), *PLAIN_BYTES]),
        (
            (HTTP, UNSAID),
            [BOTH_WAYS[0], ("tls", "mesh but http1", "http", True), ("raw_buffer", "any", "http", False)],
        ),
        ((TCP, UNSAID), [("tls", "mesh", "bytes", True), *PLAIN_BYTES]),
        ((UNSAID, TCP), [*BOTH, ("raw_buffer", "detected", "http", False), *PLAIN_BYTES]),
        ((HTTP, Protocol.GRPC), [("tls", "mesh", "http", True), ("raw_buffer", "any", "http", False)]),
    ],
)
def test_on_a_port_with_several_declared_protocols_alpn_decides_or_else_the_first_service(said, expected):
    port = InboundPort(8080, said[0], others=said[1:])
    assert _seen(_listener(port), 8080) == expected


@pytest.mark.parametrize(("said", "looked_into"), [((TCP, HTTP), False), ((HTTP, TCP), True), ((HTTP, UNSAID), False)])
def test_the_http_inspector_runs_only_where_the_first_service_declares_http_and_another_does_not(said, looked_into):
    listener = _listener(InboundPort(8080, said[0], others=said[1:]), mode=DISABLE)
    assert (8080 in _starts(_disabled(listener, "http_inspector"))) is not looked_into


@pytest.mark.parametrize("said", [(TCP, HTTP), (HTTP, TCP), (UNSAID, TCP), (HTTP, UNSAID), (TCP, UNSAID)])
def test_in_strict_mode_a_second_service_changes_no_chain_of_the_first(said):
    """Envoy closes the connections of a chain that changes in any way."""
    alone, together = (
        _chains(_listener(InboundPort(8080, said[0], others=others), mode=STRICT), 8080) for others in ((), said[1:])
    )
    assert all(each in together for each in alone)


def test_only_requests_to_a_service_without_a_declared_protocol_keep_their_http_version():
    listener = _listener(InboundPort(8080, UNSAID, others=(HTTP,)))
    managers = [_manager(each) for each in _chains(listener, 8080) if each.filters[-1].name.endswith("manager")]
    clusters = [each.route_config.virtual_hosts[0].routes[0].route.cluster for each in managers]
    assert clusters == ["inbound|8080|as-called|", "inbound|8080||", "inbound|8080|as-called|"]
    first = _chains(_listener(InboundPort(8080, HTTP, others=(UNSAID,))), 8080)[-1]
    assert _manager(first).route_config.virtual_hosts[0].routes[0].route.cluster == "inbound|8080||"


def test_connections_to_the_proxys_own_port_are_closed():
    listener = _listener()
    assert listener.filter_chains[0].name == "virtualInbound-blackhole"
    assert listener.filter_chains[0].filter_chain_match.destination_port.value == 15006
    assert len(_chains(_listener(InboundPort(15006, Protocol.HTTP)), 15006)) == 1


def test_only_a_caller_with_a_certificate_is_in_the_forwarded_client_cert_header():
    tls, plain = _chains(_listener(WEB), 8080)
    assert _manager(tls).forward_client_cert_details == HttpConnectionManager.APPEND_FORWARD
    assert _manager(plain).forward_client_cert_details == HttpConnectionManager.SANITIZE


def test_every_chain_to_the_workload_has_the_guards(monkeypatch):
    network = chain("", *_listener(DATABASE).filter_chains[0].filters).filters[0]
    network.name = "guard"
    monkeypatch.setattr(inbound, "guards_of", lambda view: guards.Guards(network=(network,), unknown=(network,)))
    for mode in TlsMode:
        for entry in _listener(WEB, DATABASE, UNKNOWN, mode=mode).filter_chains[1:]:
            if entry.filters[-1].name.endswith("tcp_proxy"):
                assert entry.filters[0].name == "guard", entry.name


def test_an_unfinished_handshake_does_not_keep_a_connection_open():
    for entry in _listener(WEB, DATABASE, UNKNOWN).filter_chains:
        assert entry.HasField("transport_socket") is (entry.transport_socket_connect_timeout.seconds == 15)


def test_a_chain_names_the_policies_that_made_it():
    mesh = Mesh()
    put(mesh, PeerAuthentication("default", "shop", mode=STRICT, origin=origin("PeerAuthentication", "default")))
    listener = Listener.FromString(virtual_inbound(group_view(mesh, group("orders"))).body)
    for entry in listener.filter_chains[1:]:
        (source,) = entry.metadata.filter_metadata["weft"]["sources"]
        assert (source["kind"], source["name"]) == ("PeerAuthentication", "default")


def test_a_rejected_listener_is_a_problem_of_every_policy_in_it():
    mesh = Mesh()
    put(
        mesh,
        AuthorizationPolicy("callers", "shop", origin=origin("AuthorizationPolicy", "callers")),
        RequestAuthentication("tokens", "shop", origin=origin("RequestAuthentication", "tokens")),
    )
    sources = virtual_inbound(group_view(mesh, group("orders"))).sources
    assert [key.name for key in sources] == ["callers", "tokens"]


@pytest.mark.parametrize("protocol", [Protocol.HTTP, Protocol.TCP, Protocol.UNDECLARED])
def test_inbound_chains_do_not_change_when_another_service_shares_the_port(protocol):
    """Envoy closes the connections of a chain that changes in any way."""
    orders, more = (service(name, origin=origin("Service", name)) for name in ("orders", "more"))
    found = [_listener(InboundPort(8080, protocol, services=each)) for each in ((orders,), (orders, more), (more,))]
    assert found[0] == found[1] == found[2]


def test_where_http_may_pass_undetected_chains_have_the_guards_for_unknown_bytes(monkeypatch):
    known, unknown = (chain("", *_listener(DATABASE).filter_chains[0].filters).filters[0] for _ in range(2))
    known.name, unknown.name = "known", "unknown"
    monkeypatch.setattr(inbound, "guards_of", lambda view: guards.Guards(network=(known,), unknown=(unknown,)))
    for said in ((TCP, HTTP), (HTTP, TCP), (UNSAID, TCP)):
        for entry in _chains(_listener(InboundPort(8080, said[0], others=said[1:])), 8080):
            assert entry.filters[-1].name.endswith("manager") or entry.filters[0].name == "unknown", said
    assert _chains(_listener(DATABASE), 3306)[0].filters[0].name == "known"


def _manager(entry):
    return HttpConnectionManager.FromString(entry.filters[0].typed_config.value)
