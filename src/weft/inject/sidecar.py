"""The proxy of one pod, as far as its command line depends on the pod. Who composes the injector brings the renderer
that turns it into Envoy's arguments: this package knows pods, and no Envoy.

What only kubelet will know is written as a `variable`; `for_kubelet` makes it one that kubelet fills in, and keeps
everything else that is written with a dollar as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

import msgspec

from weft.model.app_probe import AppProbe

_MARK = "~@~"  # nobody writes it, and JSON leaves it alone
_VARIABLE = re.compile(rf"{_MARK}([A-Z_]+){_MARK}")


class InjectedSidecar(msgspec.Struct, frozen=True, kw_only=True):
    kind: str  # Istio's word: sidecar, or router for a gateway
    name: str
    namespace: str
    address: str  # the pod's first
    workload: str
    service_account: str
    labels: Mapping[str, str]
    containers: tuple[str, ...]
    metadata: Mapping[str, str]  # further words about the proxy; they win
    dns_domain: str
    cluster_id: str
    mesh_id: str
    sds_socket: str
    xds_socket: str
    control: str  # HOST:PORT; empty: through the socket
    status_port: int  # 0: none
    probes: tuple[AppProbe, ...]
    ipv6: bool
    log_level: str
    component_log_level: str
    concurrency: int
    drain_seconds: int
    memory: int = 0  # bytes of its container, where it is to turn requests away before it is killed for them


# The arguments of the executable `envoy`.
Renderer = Callable[[InjectedSidecar], Sequence[str]]


def variable(name: str) -> str:
    """An environment variable of the container, to be filled in by kubelet."""
    return f"{_MARK}{name}{_MARK}"


def for_kubelet(text: str) -> str:
    """Kubernetes reads `$(NAME)` in arguments, and two dollars as one."""
    return _VARIABLE.sub(r"$(\1)", text.replace("$", "$$"))
