from __future__ import annotations

from collections import Counter

import msgspec
from bench.kube_objects import Shape, _pod, _slice, route

from weft.api.document import Document
from weft.api.parse import parse
from weft.kube.endpoint_slices import slice_of
from weft.kube.objects import PodObject, Slice
from weft.kube.pods import record_of
from weft.model.names import ObjectKey

SHAPE = Shape(services=1000, nodes=100)


def test_every_node_has_as_many_pods_and_none_has_two_of_a_service():
    nodes = [SHAPE.node(pod) for pod in range(SHAPE.pods)]
    assert set(Counter(nodes).values()) == {SHAPE.pods // SHAPE.nodes}
    assert all(nodes[pod] != nodes[pod + 1] for pod in range(0, SHAPE.pods, 2))


def test_a_pod_is_one_of_the_mesh_with_a_group_of_its_service():
    record = record_of(msgspec.convert(_pod("team-3", "service-4", "service-4-0", "node-7"), PodObject))
    assert record.meshed
    assert (record.node, record.group.service_account) == ("node-7", "service-4")


def test_addresses_of_pods_are_their_own():
    slices = [slice_of(msgspec.convert(_slice(SHAPE, number), Slice)) for number in range(SHAPE.services)]
    addresses = [endpoint.address for each in slices for endpoint in each.endpoints]
    assert len(set(addresses)) == len(addresses) == SHAPE.pods


def test_a_route_is_one_that_weft_reads_without_complaint():
    written = route(SHAPE, 30, 90)
    key = ObjectKey("VirtualService", "team-3", "service-0")
    parsed = parse(Document(key, written["apiVersion"], written), "cluster.local")
    assert not parsed.problems
    (read,) = parsed.values
    assert [part.weight for part in read.http[0].route] == [90, 10]
