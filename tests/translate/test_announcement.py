from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.extensions.transport_sockets.proxy_protocol.v3.upstream_proxy_protocol_pb2 import (
    ProxyProtocolUpstreamTransport,
)

from weft.model.destination_rule import ProxyProtocol
from weft.translate.announcement import announce_caller


def inside(socket):
    config = ProxyProtocolUpstreamTransport()
    assert socket.typed_config.Unpack(config)
    return config.config.version, config.transport_socket.name


def test_the_proxy_header_precedes_plaintext():
    cluster = Cluster()
    announce_caller(cluster, ProxyProtocol.V2)
    assert inside(cluster.transport_socket) == (1, "envoy.transport_sockets.raw_buffer")


def test_the_proxy_header_precedes_every_transport_socket_of_the_cluster():
    cluster = Cluster()
    for name in ("tls", "raw"):
        cluster.transport_socket_matches.add().transport_socket.name = name
    announce_caller(cluster, ProxyProtocol.V1)
    assert [inside(each.transport_socket) for each in cluster.transport_socket_matches] == [(0, "tls"), (0, "raw")]
    assert not cluster.HasField("transport_socket")
