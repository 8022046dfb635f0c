from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.listener.v3.listener_pb2 import Listener
from google.protobuf.any_pb2 import Any

from weft.explain.world import EnvoyResources
from weft.xds.types import CLUSTER, LISTENER, SECRET


def test_resources_are_read_from_the_bytes_that_were_sent():
    sent = [
        (LISTENER, Listener(name="l").SerializeToString()),
        (CLUSTER, Cluster(name="c").SerializeToString()),
        (SECRET, b"never opened"),
    ]
    read = EnvoyResources.from_bytes(sent)
    assert list(read.listeners) == ["l"] and list(read.clusters) == ["c"] and not read.routes


def test_packed_messages_are_decoded_once_and_only_as_their_type():
    packed = Any()
    packed.Pack(Cluster(name="c"))
    resources = EnvoyResources()
    assert resources.opened(packed, Cluster) is resources.opened(packed, Cluster)
    assert resources.opened(packed, Listener) is None
