import pytest
from envoy.config.listener.v3.listener_pb2 import Listener
from google.protobuf.json_format import ParseDict

from weft.explain.listener import IncomingConnection, chain, is_address, outbound
from weft.explain.request import Speaks
from weft.explain.world import EnvoyResources

INSPECTORS = [{"name": f"envoy.filters.listener.{kind}_inspector"} for kind in ("tls", "http")]


def _listener(*chains, **more):
    listed = [{"name": name, "filter_chain_match": match} for name, match in chains]
    return ParseDict({"name": "l", "filter_chains": listed, "listener_filters": INSPECTORS, **more}, Listener())


def _to(address="10.0.0.1", port=80, speaks=Speaks.HTTP, **more):
    return IncomingConnection("10.9.9.9", address, port, speaks, **more)


def _found(listener, connection):
    found = chain(listener, connection)
    return found.name if found is not None else None


def test_the_listener_of_the_original_destination_is_handed_the_connection():
    def at(name, address, port, **more):
        place = {"socket_address": {"address": address, "port_value": port}}
        return ParseDict({"name": name, "address": place, **more}, Listener())

    catching = at("virtualOutbound", "0.0.0.0", 15001, use_original_dst=True)
    resources = EnvoyResources([catching, at("own", "10.0.0.1", 80), at("shared", "0.0.0.0", 80), at("six", "::", 80)])
    assert outbound(resources, _to()).name == "own"
    assert outbound(resources, _to("10.0.0.2")).name == "shared"
    assert outbound(resources, _to("fd00::1")).name == "six"
    assert outbound(resources, _to(port=81)).name == "virtualOutbound"
    assert outbound(EnvoyResources(), _to()) is None


def test_a_chain_is_matched_by_port_first_without_falling_back():
    listener = _listener(("80", {"destination_port": 80, "transport_protocol": "tls"}), ("any", {}))
    assert _found(listener, _to(speaks=Speaks.TLS)) == "80"
    assert _found(listener, _to()) is None
    assert _found(listener, _to(port=81)) == "any"


def test_the_default_chain_matches_if_no_other_does():
    listener = _listener(("80", {"destination_port": 81}), default_filter_chain={"name": "rest"})
    assert _found(listener, _to()) == "rest"


@pytest.mark.parametrize(
    ("name", "expected"),
    [("a.b.c", "exact"), ("x.b.c", "star"), ("x.y.b.c", "star"), ("A.B.C", "exact"), ("b.c", "none"), ("", "none")],
)
def test_server_names_are_matched_from_the_longest(name, expected):
    listener = _listener(("exact", {"server_names": ["a.b.c"]}), ("star", {"server_names": ["*.b.c"]}), ("none", {}))
    assert _found(listener, _to(speaks=Speaks.TLS, server_name=name)) == expected


def test_the_offered_protocols_are_tried_in_their_order():
    listener = _listener(
        ("two", {"application_protocols": ["h2"]}), ("one", {"application_protocols": ["http/1.1"]}), ("rest", {})
    )
    assert _found(listener, _to(speaks=Speaks.TLS, offers=("http/1.1", "h2"))) == "one"
    assert _found(listener, _to(speaks=Speaks.TLS, offers=("x", "h2"))) == "two"
    assert _found(listener, _to()) == "one" and _found(listener, _to(speaks=Speaks.BYTES)) == "rest"


def test_the_smallest_range_of_addresses_wins():
    def ranges(*written):
        return {"prefix_ranges": [{"address_prefix": a, "prefix_len": n} for a, n in written]}

    listener = _listener(("eight", ranges(("10.0.0.0", 8))), ("one", ranges(("10.0.0.1", 32))), ("all", {}))
    assert _found(listener, _to()) == "one" and _found(listener, _to("10.2.0.1")) == "eight"
    assert _found(listener, _to("192.0.2.1")) == "all"


def test_a_disabled_inspector_detects_nothing():
    off = {"filter_disabled": {"or_match": {"rules": [_port(80), _port(90)]}}}
    inspectors = [INSPECTORS[0] | off, INSPECTORS[1]]
    listener = _listener(("tls", {"transport_protocol": "tls"}), ("plain", {}), listener_filters=inspectors)
    assert _found(listener, _to(speaks=Speaks.TLS)) == "plain"
    assert _found(listener, _to(port=81, speaks=Speaks.TLS)) == "tls"
    only = [{**INSPECTORS[0], "filter_disabled": {"not_match": _port(80)}}]
    listener = _listener(("tls", {"transport_protocol": "tls"}), ("plain", {}), listener_filters=only)
    assert _found(listener, _to(speaks=Speaks.TLS)) == "tls"


def _port(number):
    return {"destination_port_range": {"start": number, "end": number + 1}}


def test_addresses_are_distinguished_from_names():
    assert is_address("::1") and is_address("10.0.0.1") and not is_address("orders")
