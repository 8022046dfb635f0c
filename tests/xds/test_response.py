from __future__ import annotations

import pytest
from conversation import DELTA, SOTW, blob, contents
from envoy.service.discovery.v3 import discovery_pb2

from weft.xds.response import Response, Responses
from weft.xds.types import CLUSTER


@pytest.mark.parametrize("dialect", [DELTA, SOTW])
def test_the_bytes_carry_every_resource(dialect):
    response = Response(dialect, CLUSTER, "7", [blob("a", "1"), blob("b", "2")])
    assert contents(dialect, response) == {"a": "1", "b": "2"}


def test_delta_names_versions_removals_and_the_push():
    message = discovery_pb2.DeltaDiscoveryResponse.FromString(
        Response(DELTA, CLUSTER, "7", [blob("a", "v1")], ["gone"]).payload
    )
    (resource,) = message.resources
    assert (resource.name, resource.version, resource.resource.type_url) == ("a", "v1", CLUSTER)
    assert (list(message.removed_resources), message.nonce, message.type_url) == (["gone"], "7", CLUSTER)


def test_state_of_the_world_has_a_version_to_acknowledge():
    message = discovery_pb2.DiscoveryResponse.FromString(Response(SOTW, CLUSTER, "7", [blob("a")]).payload)
    assert (message.version_info, message.nonce, message.resources[0].type_url) == ("7", "7", CLUSTER)


def test_an_equal_response_is_built_once():
    responses = Responses()
    first = responses.get("key", lambda: Response(DELTA, CLUSTER, "1", [blob("a")]))
    assert responses.get("key", lambda: pytest.fail("made twice")) is first


def test_the_cache_is_bounded_by_bytes_and_drops_the_oldest_first():
    responses = Responses(budget=3 * len(Response(DELTA, CLUSTER, "1", [blob("a")]).payload))
    made = [responses.get(key, lambda: Response(DELTA, CLUSTER, "1", [blob("a")])) for key in range(4)]
    assert responses.get(3, lambda: pytest.fail("forgotten")) is made[3]
    assert responses.get(1, lambda: pytest.fail("forgotten")) is made[1]
    assert responses.get(0, lambda: Response(DELTA, CLUSTER, "1", [])) is not made[0]
