"""Adds the PROXY protocol header to the connections of a cluster. The header gives the upstream the address of the
client; it is sent first on each connection, before TLS."""

from __future__ import annotations

from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.core.v3.base_pb2 import TransportSocket
from envoy.config.core.v3.proxy_protocol_pb2 import ProxyProtocolConfig
from envoy.extensions.transport_sockets.proxy_protocol.v3.upstream_proxy_protocol_pb2 import (
    ProxyProtocolUpstreamTransport,
)
from envoy.extensions.transport_sockets.raw_buffer.v3.raw_buffer_pb2 import RawBuffer

from weft.model.destination_rule import ProxyProtocol
from weft.translate.protos import packed

_NAME = "envoy.transport_sockets.upstream_proxy_protocol"
_VERSIONS = {ProxyProtocol.V1: ProxyProtocolConfig.V1, ProxyProtocol.V2: ProxyProtocolConfig.V2}


def announce_caller(cluster: Cluster, version: ProxyProtocol) -> None:
    """Make all connections of a cluster begin with a PROXY header of this version: each transport socket that the
    cluster already has is wrapped. Call it after TLS is configured."""
    if not cluster.transport_socket_matches:
        cluster.transport_socket.CopyFrom(_around(cluster.transport_socket, version))
    for match in cluster.transport_socket_matches:
        match.transport_socket.CopyFrom(_around(match.transport_socket, version))


def _around(inner: TransportSocket, version: ProxyProtocol) -> TransportSocket:
    plain = TransportSocket(name="envoy.transport_sockets.raw_buffer", typed_config=packed(RawBuffer()))
    config = ProxyProtocolUpstreamTransport(
        config=ProxyProtocolConfig(version=_VERSIONS[version]), transport_socket=inner if inner.name else plain
    )
    return TransportSocket(name=_NAME, typed_config=packed(config))
