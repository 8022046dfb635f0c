"""What a running mesh says of itself: the one shape behind `weft status -o json`, `weft ps` and the live view.
The engine fills it in, the mesh's socket carries it as JSON, the CLI prints it. Loaded by every command, so it loads
next to nothing itself."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from weft.base.problem import Problem
from weft.node.status import IdentityStatus


class PodPhase(StrEnum):
    STARTING = "Starting"  # namespace, rules and proxy are being made
    RUNNING = "Running"  # the command runs, its readiness probe has not passed yet
    READY = "Ready"
    BACK_OFF = "BackOff"  # it ended, and waits before the next start
    COMPLETED = "Completed"  # a job that ended well
    FAILED = "Failed"  # it ended badly and will not be started again
    ENDING = "Ending"


class PodSync(StrEnum):
    """How far a proxy is with what the control plane last wanted it to have; Istio's words."""

    SYNCED = "SYNCED"
    STALE = "STALE"
    NOT_SENT = "NOT SENT"
    NONE = "-"  # no proxy


class PodStatus(msgspec.Struct, frozen=True):
    name: str
    namespace: str
    workload: str
    phase: PodPhase
    addresses: tuple[str, ...] = ()
    sync: PodSync = PodSync.NONE
    restarts: int = 0  # of the command
    proxy_restarts: int = 0
    pid: int = 0  # of the command; 0 while it does not run
    exit_code: int | None = None  # of the last run that ended
    message: str = ""  # why it is in this phase, where that is not plain
    since: float = 0.0  # Unix time at which it came into this phase
    proxy_memory: int = 0  # private bytes of its Envoy
    identity: IdentityStatus | None = None  # None without a proxy
    labels: dict[str, str] = {}
    gateway: bool = False


class WorkloadStatus(msgspec.Struct, frozen=True):
    name: str
    namespace: str
    replicas: int
    ready: int
    pods: tuple[PodStatus, ...] = ()
    published: tuple[str, ...] = ()  # of a gateway: where this machine's callers reach it, as ADDRESS:PORT


class EdgeStatus(msgspec.Struct, frozen=True):
    """Calls from one workload to one destination, over the last few seconds, as the caller's proxy counted them."""

    source: str  # NAMESPACE/WORKLOAD
    destination: str  # the called host
    port: int
    subset: str = ""
    requests_per_second: float = 0.0
    success: float | None = None  # 0.0–1.0; None where nothing was called (or for TCP)
    denied: float | None = None  # the share that was answered 401 or 403, which is no failure of the called
    p50_ms: float | None = None
    p99_ms: float | None = None
    requests: int = 0  # since the proxies started
    connections: int = 0  # for TCP


class MeshStatus(msgspec.Struct, frozen=True):
    name: str
    directory: str
    pid: int
    started: float
    workloads: tuple[WorkloadStatus, ...] = ()
    edges: tuple[EdgeStatus, ...] = ()
    problems: tuple[Problem, ...] = ()
    push: int = 0  # number of the last push
    objects: int | None = None  # how many the files say; None before they have been read
    is_checked: bool = True  # False while somebody still looks whether the objects fit together
    is_told: bool = True  # False while a proxy has not answered all there is for it, or more is about to be

    @property
    def pods(self) -> tuple[PodStatus, ...]:
        return tuple(pod for workload in self.workloads for pod in workload.pods)


CANNOT_START = 422  # the HTTP status where, instead of an Entrance, there is a problem with the command


class Entrance(msgspec.Struct, frozen=True):
    """What to become, to run a command in a pod on one's own terminal."""

    argv: list[str]
    environment: dict[str, str]
