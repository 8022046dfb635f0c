"""The status of a running mesh, as in `weft status -o json`, `weft ps` and the live view.

The engine fills it in, the mesh's socket sends it as JSON, and the CLI prints it. Every command loads this module, so
it imports little.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from weft.base.problem import Problem, Severity
from weft.node.status import IdentityStatus


class PodPhase(StrEnum):
    STARTING = "Starting"  # namespace, interception rules and proxy are being created
    RUNNING = "Running"  # the command runs, its readiness probe has not passed yet
    READY = "Ready"
    BACK_OFF = "BackOff"  # the command has ended, and its next start is delayed
    COMPLETED = "Completed"  # a job that ended with status 0
    FAILED = "Failed"  # the command failed and will not be started again
    ENDING = "Ending"


class PodSync(StrEnum):
    """Whether a proxy has acknowledged the control plane's latest config; the values are those of `istioctl
    proxy-status`."""

    SYNCED = "SYNCED"
    STALE = "STALE"
    NOT_SENT = "NOT SENT"
    NONE = "-"  # the pod has no proxy


class PodStatus(msgspec.Struct, frozen=True):
    name: str
    namespace: str
    workload: str
    phase: PodPhase
    addresses: tuple[str, ...] = ()
    sync: PodSync = PodSync.NONE
    restarts: int = 0  # restarts of the command
    proxy_restarts: int = 0
    pid: int = 0  # process id of the command; 0 while it does not run
    exit_code: int | None = None  # exit status of the last run that ended
    message: str = ""  # why the pod is in this phase, where the phase does not explain itself
    since: float = 0.0  # Unix time at which the pod entered this phase
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
    published: tuple[str, ...] = ()  # for a gateway: where it can be reached from this machine, as ADDRESS:PORT


class EdgeStatus(msgspec.Struct, frozen=True):
    """Calls from one workload (`source`: NAMESPACE/WORKLOAD) to one destination (the called host, port and subset), as
    the caller's proxies counted them. `requests` and `connections` (of TCP) are totals since the mesh was started, and
    include pods that have ended; after a proxy's restart, `connections` counts that proxy from zero again. Everything
    else is about the last few seconds. `success`: the share of successful responses, 0.0 to 1.0. `denied`: the share of
    the responses 401 and 403, which also count as success. Both are None without requests, and for TCP. `p50_ms`,
    `p99_ms`: quantiles of the latency."""

    source: str  # NAMESPACE/WORKLOAD
    destination: str  # the called host
    port: int
    subset: str = ""
    requests_per_second: float = 0.0
    success: float | None = None  # 0.0–1.0; None without requests, and for TCP
    denied: float | None = None  # share of responses 401 and 403, which count as success of the called service
    p50_ms: float | None = None
    p99_ms: float | None = None
    requests: int = 0  # since the mesh was started
    connections: int = 0  # TCP connections


class RejectedVersion(msgspec.Struct, frozen=True):
    """An object whose newest version is not in force, because it is rejected or cannot be read. `object`: KIND
    NAMESPACE/NAME. `file` and `line`: the place of that version, if it is known. `is_in_force`: whether an earlier
    version is in force."""

    object: str
    kind: str
    file: str
    line: int
    is_in_force: bool

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}: " if self.file else ""
        if self.is_in_force:
            return f"{place}an earlier version of {self.object} is in force, because the newest one is rejected"
        return f"{place}{self.object} has no pods, because it is rejected"


class MeshStatus(msgspec.Struct, frozen=True):
    name: str
    directory: str
    pid: int
    started: float
    workloads: tuple[WorkloadStatus, ...] = ()
    edges: tuple[EdgeStatus, ...] = ()
    problems: tuple[Problem, ...] = ()
    push: int = 0  # number of the last push
    rejected: tuple[RejectedVersion, ...] = ()  # objects whose newest version is not in force
    objects: int | None = None  # number of objects in the files; None before the files have been read
    is_checked: bool = True  # False while findings between the objects are still being computed
    is_told: bool = True  # False while a push is pending, or a proxy has not acknowledged its latest config

    @property
    def notable_rejections(self) -> tuple[RejectedVersion, ...]:
        """The rejected versions with an effect that their error messages do not show: an earlier version of the object
        is in force, or a workload does not run."""
        return tuple(each for each in self.rejected if each.is_in_force or each.kind == "Workload")

    @property
    def lacks_workloads(self) -> bool:
        """Whether the files contain workloads that do not run, because no version of them is in force. If the mesh has
        no workload at all, any error counts, because a file that cannot be read may contain a workload."""
        missing = any(each.kind == "Workload" and not each.is_in_force for each in self.rejected)
        return missing or (not self.workloads and any(each.severity is Severity.ERROR for each in self.problems))

    @property
    def pods(self) -> tuple[PodStatus, ...]:
        return tuple(pod for workload in self.workloads for pod in workload.pods)


CANNOT_START = 422  # HTTP status of an answer that contains a problem with the command instead of an Entrance


class Entrance(msgspec.Struct, frozen=True):
    """The arguments (`argv`) and the environment of os.execve for a process that runs a command in a pod, on the
    terminal of its caller."""

    argv: list[str]
    environment: dict[str, str]
