"""The pods of this node as their volumes tell of them, and what is made for each: a socket for its identity, one for
its configuration, and where that is asked for, one for its redirect. All of them are in the pod's one volume.

Kubelet's calls come in through `csi.py`; what leaves are sockets. What guards them: the volume is mounted into the
proxy's container alone, and kubelet mounts it into no other pod; the modes let in the proxy's group; and the kernel
says which user calls. Which network the caller lives in is not asked here, as it is on one machine: the volume is made
before the pod has a network, and the agent does not see the processes of other pods.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import msgspec

from weft.model.proxy import (
    IDENTITY_MOUNT,
    PROXY_GID,
    PROXY_UID,
    REDIRECT_SOCKET,
    SDS_SOCKET,
    XDS_SOCKET,
)
from weft.node.door import Doorway

SOCKETS = frozenset({SDS_SOCKET, XDS_SOCKET, REDIRECT_SOCKET})


class Pod(msgspec.Struct, frozen=True, order=True):
    """As kubelet says it. A name may be used again, even while the first of that name is still here; a UID is not."""

    namespace: str
    name: str
    uid: str
    service_account: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class Relay(Protocol):
    """Who serves each pod's proxy its configuration (`relay.py`)."""

    async def add(self, pod: Pod, doorway: Doorway) -> None:
        """Open a socket there for the pod's Envoy. Raises DoorError. One of the same UID and doorway stays as it is."""

    async def remove(self, uid: str) -> None:
        """Its socket is gone when this returns. Idempotent."""


def doorway_in(volume: Path, socket: str) -> Doorway:
    return Doorway(
        path=volume / socket,
        uid=PROXY_UID,
        gid=PROXY_GID,
        beside=SOCKETS - {socket},
        seen=Path(IDENTITY_MOUNT, socket),
    )
