"""The proxy of one pod: the values from which its command line is built. The caller of the injector supplies the
renderer that turns these values into Envoy's arguments, so this package does not depend on Envoy.

A value that only kubelet can supply is written as a `variable`. `for_kubelet` turns it into Kubernetes' `$(NAME)`
and escapes every other dollar sign.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

import msgspec

from weft.model.app_probe import AppProbe

_MARK = "~@~"  # occurs in no real value, and JSON does not escape it
_VARIABLE = re.compile(rf"{_MARK}([A-Z_]+){_MARK}")


class InjectedSidecar(msgspec.Struct, frozen=True, kw_only=True):
    kind: str  # Istio's node type: sidecar, or router for a gateway
    name: str
    namespace: str
    address: str  # the pod's first address
    workload: str
    service_account: str
    labels: Mapping[str, str]
    containers: tuple[str, ...]
    metadata: Mapping[str, str]  # further node metadata; overrides other values
    dns_domain: str
    cluster_id: str
    mesh_id: str
    sds_socket: str
    xds_socket: str
    control: str  # HOST:PORT; empty: through the xDS socket
    status_port: int  # 0: no status port
    probes: tuple[AppProbe, ...]
    ipv6: bool
    log_level: str
    component_log_level: str
    concurrency: int
    drain_seconds: int
    memory: int = 0  # memory limit in bytes, if Envoy should reject requests before it is OOM-killed


# Returns the arguments of the executable `envoy`.
Renderer = Callable[[InjectedSidecar], Sequence[str]]


def variable(name: str) -> str:
    """Return a placeholder for an environment variable of the container, whose value kubelet fills in."""
    return f"{_MARK}{name}{_MARK}"


def for_kubelet(text: str) -> str:
    """Replace placeholders by `$(NAME)`, which Kubernetes expands in arguments, and double every other dollar sign."""
    return _VARIABLE.sub(r"$(\1)", text.replace("$", "$$"))
