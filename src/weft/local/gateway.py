"""What a gateway has instead of a sidecar: an Envoy alone, which intercepts nobody and listens for itself.

Where its ports are published, it is started in a directory of its own, in which it makes a socket for each of them.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from weft.local.front_door import Publication
from weft.local.pod import LocalPod
from weft.model.group import ProxyKind
from weft.model.names import ObjectKey, where_of
from weft.model.proxy import PROXY_GID, PROXY_UID, published_socket
from weft.model.value import Value
from weft.model.workload import Workload
from weft.node.proxy import ProxyPlan


def as_gateway(sidecar: ProxyPlan, doorstep: Path) -> ProxyPlan:
    """`doorstep`: where its published ports are sockets. It is made here, the proxy's own and nobody else's."""
    doorstep.mkdir(mode=0o700, exist_ok=True)
    os.chown(doorstep, PROXY_UID, PROXY_GID)
    bootstrap = sidecar.bootstrap
    node = msgspec.structs.replace(
        bootstrap.node, kind=ProxyKind.GATEWAY.value, containers=(), metadata={"INTERCEPTION_MODE": ""}
    )
    return msgspec.structs.replace(
        sidecar,
        bootstrap=msgspec.structs.replace(bootstrap, node=node),
        interception=None,
        sockets=(*sidecar.sockets, str(doorstep)),
        started_in=doorstep,
    )


def publications(key: ObjectKey, values: tuple[Value, ...], pods: Iterable[LocalPod]) -> Iterator[Publication]:
    """What a Workload publishes, and by which of its pods. A port stays open while nobody serves it: who calls then is
    sent away, as by a service without pods."""
    workload = next((value for value in values if isinstance(value, Workload)), None)
    for each in workload.publish if workload is not None else ():
        serving = [pod.plan for pod in pods if pod.ready and each.port in pod.instance().published]
        yield Publication(
            owner=str(key),
            where=where_of(workload.origin if workload is not None else None, line=each.line),
            address=each.address,
            host_port=each.host_port,
            sockets=tuple(sorted(f"{plan.uid}/{published_socket(each.port)}" for plan in serving)),
        )


def clear_doorstep(pod: LocalPod) -> None:
    """Of a pod that is gone."""
    started_in = pod.proxy.plan.started_in if pod.proxy is not None else None
    if started_in is not None:
        shutil.rmtree(started_in, ignore_errors=True)
