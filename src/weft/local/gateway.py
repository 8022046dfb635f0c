"""Derives the plan of a gateway's proxy (everything needed to run it) from the plan of a sidecar. A gateway is an Envoy
without an app and without traffic interception, which listens on its own ports.

If ports of the gateway are published on the machine, its Envoy starts in a private directory, in which it creates a
Unix socket for each published port.
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
    """Return the plan of a gateway's proxy (everything needed to run it), derived from `sidecar`, the plan of a
    sidecar. `doorstep`: the directory for the sockets of the gateway's published ports. The directory is created here,
    and only the proxies' user may access it."""
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
    """Yield the ports that the Workload `key` publishes, each with the sockets of the ready pods among `pods` that
    serve it. `values` are the parsed values of the Workload. A port without such a pod is yielded too: it stays open,
    and its connections are closed, as for a service without endpoints."""
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
    """Delete the socket directory of a gateway pod that has ended."""
    started_in = pod.proxy.plan.started_in if pod.proxy is not None else None
    if started_in is not None:
        shutil.rmtree(started_in, ignore_errors=True)
