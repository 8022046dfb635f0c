from __future__ import annotations

import math

import pytest
from conversation import DELTA, SOTW
from envoy.service.discovery.v3 import discovery_pb2
from hypothesis import given
from hypothesis import strategies as st

from weft.xds import request as module
from weft.xds.request import METADATA_BYTES, NAME_LENGTH, NAMES, Locality, StreamRefused, XdsRequest, parse
from weft.xds.types import CLUSTER


def delta(**fields: object) -> bytes:
    return discovery_pb2.DeltaDiscoveryRequest(type_url=CLUSTER, **fields).SerializeToString()


def test_too_much_node_metadata_is_rejected():
    message = discovery_pb2.DeltaDiscoveryRequest(type_url=CLUSTER, node={"id": "a"})
    message.node.metadata.update({"LABELS": "x" * METADATA_BYTES})
    with pytest.raises(StreamRefused, match="bytes of node metadata"):
        parse(DELTA, message.SerializeToString())


def test_reads_a_delta_request():
    message = discovery_pb2.DeltaDiscoveryRequest(
        type_url=CLUSTER,
        response_nonce="3",
        resource_names_subscribe=["a"],
        resource_names_unsubscribe=["b"],
        initial_resource_versions={"c": "9"},
    )
    message.error_detail.message = "bad\n  indeed\n"
    request, node = parse(DELTA, message.SerializeToString())
    assert request == XdsRequest(CLUSTER, "3", "bad indeed", ("a",), ("b",), {"c": "9"})
    assert node is None


def test_reads_the_node_of_a_client():
    message = discovery_pb2.DiscoveryRequest(type_url=CLUSTER, resource_names=["a"])
    message.node.id, message.node.cluster = "pod-1", "shop"
    message.node.metadata.update({"LABELS": {"app": "web"}})
    message.node.locality.zone = "z"
    message.node.user_agent_name = "envoy"
    message.node.user_agent_build_version.version.major_number = 1
    request, node = parse(SOTW, message.SerializeToString())
    assert request.names == ("a",)
    assert (node.id, node.cluster, node.locality) == ("pod-1", "shop", Locality(zone="z"))
    assert (node.metadata, node.user_agent) == ({"LABELS": {"app": "web"}}, "envoy 1.0.0")


def test_an_error_without_words_is_still_an_error():
    message = discovery_pb2.DeltaDiscoveryRequest(type_url=CLUSTER)
    message.error_detail.code = 13
    assert parse(DELTA, message.SerializeToString())[0].error == "code 13, no message"


@pytest.mark.parametrize(
    "fields",
    [
        {"resource_names_subscribe": ["x" * (NAME_LENGTH + 1)]},
        {"resource_names_unsubscribe": ["n"] * (NAMES + 1)},
        {"initial_resource_versions": {"x" * (NAME_LENGTH + 1): "1"}},
        {"response_nonce": "n" * (NAME_LENGTH + 1)},
    ],
    ids=["a long name", "many names", "a long name with a version", "a long nonce"],
)
def test_rejects_requests_that_are_too_large(fields):
    with pytest.raises(StreamRefused, match="the limit is"):
        parse(DELTA, delta(**fields))


def test_rejects_a_request_without_a_type():
    with pytest.raises(StreamRefused, match="type_url"):
        parse(DELTA, discovery_pb2.DeltaDiscoveryRequest().SerializeToString())


def test_rejects_metadata_that_is_not_json():
    message = discovery_pb2.DiscoveryRequest(type_url=CLUSTER)
    message.node.metadata.update({"weight": math.inf})
    with pytest.raises(StreamRefused, match="metadata"):
        parse(SOTW, message.SerializeToString())


@given(st.binary(max_size=200), st.sampled_from([DELTA, SOTW]))
def test_garbage_is_rejected_or_parsed_and_nothing_else(payload, dialect):
    try:
        request, _ = parse(dialect, payload)
    except StreamRefused:
        return
    assert request.type_url


def test_a_reconnecting_client_may_send_more_held_names_than_are_kept(monkeypatch):
    monkeypatch.setattr(module, "HELD", 2)
    monkeypatch.setattr(module, "NAMES", 4)
    held = [f"hold|15001|10.96.0.{number}" for number in range(9)]
    message = discovery_pb2.DeltaDiscoveryRequest(type_url=CLUSTER, resource_names_subscribe=[*held, "*", "a"])
    request, _ = parse(DELTA, message.SerializeToString())
    assert request.names == (*held[:2], "*", "a")
