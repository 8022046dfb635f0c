"""Serves secrets to Envoys by SDS: each workload's certificate and trusted roots, on that workload's own socket.

Input: secrets by workload. Output: an Envoy that connects at a workload's socket gets that workload's secrets at once,
and their replacements on the same stream. The secrets have Istio's names, `default` and `ROOTCA`. Rule: the socket
decides which workload's secrets are served, never data sent by the client.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Hashable, Sequence
from pathlib import Path

from envoy.extensions.transport_sockets.tls.v3 import secret_pb2

from weft.model.proxy import CERTIFICATE, ROOTS
from weft.node.door import MOST_STREAMS, Doorway
from weft.node.entrances import Entrances
from weft.xds.clients import Peer
from weft.xds.request import NodeInfo, StreamRefused
from weft.xds.server import SECRET_SERVICE, XdsServer
from weft.xds.snapshot import Snapshots
from weft.xds.stream import NackedResource
from weft.xds.types import SECRET

log = logging.getLogger("weft.node.sds")


class Secret:
    """One SDS resource. Its version is a hash of its public part, the certificates."""

    __slots__ = ("body", "name", "version")

    def __init__(self, name: str, version: str, body: bytes) -> None:
        self.name, self.version, self.body = name, version, body

    def __repr__(self) -> str:
        return f"<secret {self.name} {self.version}>"


def certificate_secret(chain: Sequence[str], key_pem: bytes) -> Secret:
    certificates = "".join(chain).encode()
    message = secret_pb2.Secret(name=CERTIFICATE)
    message.tls_certificate.certificate_chain.inline_bytes = certificates
    message.tls_certificate.private_key.inline_bytes = key_pem
    return Secret(CERTIFICATE, _version(certificates), message.SerializeToString())


def roots_secret(bundle: Sequence[str]) -> Secret:
    roots = "".join(bundle).encode()
    message = secret_pb2.Secret(name=ROOTS)
    message.validation_context.trusted_ca.inline_bytes = roots
    return Secret(ROOTS, _version(roots), message.SerializeToString())


class SecretServer:
    """The SDS server of a machine. `private` is a directory that only root can enter, for the server's own sockets."""

    def __init__(self, private: Path) -> None:
        self._snapshots = Snapshots()
        # No two Envoys have the same secrets: nothing is shared, and replaced secrets are not kept.
        self._server = XdsServer(
            self._snapshots, self, service=SECRET_SERVICE, shared_bytes=0, most_streams=MOST_STREAMS
        )
        self._entrances: Entrances[str] = Entrances(private, self._server)

    async def open(self, workload: str, doorway: Doorway) -> None:
        """Open the workload's socket. Raises DoorError."""
        await self._entrances.open(workload, workload, doorway)

    def is_open(self, workload: str, doorway: Doorway) -> bool:
        return self._entrances.doorway(workload) == doorway

    def workloads(self) -> tuple[str, ...]:
        return self._entrances.names()

    async def close(self, workload: str, *, gone: bool = False) -> None:
        """Close the workload's socket; its Envoy keeps the secrets it has. `gone`: the workload has ended, so the
        socket's directory is deleted too; otherwise the directory is kept, because another agent may open the socket
        again."""
        if await self._entrances.close(workload, gone=gone):
            self._snapshots.drop(workload)

    def put(self, workload: str, *secrets: Secret) -> None:
        self._snapshots.update(workload, {SECRET: {secret.name: secret for secret in secrets}})

    def has(self, workload: str, name: str) -> bool:
        return name in self._snapshots.resources(workload, SECRET)

    # Callbacks of the xDS server (weft.xds.server.StreamObserver)

    def join(self, stream_id: int, node: NodeInfo, peer: Peer) -> Hashable:
        workload = self._entrances.owner(peer.listener)
        if workload is None:
            raise StreamRefused("the workload was removed")
        return workload

    def leave(self, stream_id: int) -> None: ...

    def acked(self, stream_id: int, type_url: str, nonce: str) -> None: ...

    def nacked(self, stream_id: int, type_url: str, nonce: str, message: str) -> None: ...

    def wanted(self, stream_id: int, names: tuple[str, ...], had: tuple[str, ...]) -> None: ...

    def on_nack(self, resource: NackedResource) -> None:
        log.error("%s: its Envoy rejected the secret %s: %s", resource.group, resource.name, resource.message)


def _version(public: bytes) -> str:
    return hashlib.sha256(public).hexdigest()[:16]
