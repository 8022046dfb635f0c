"""The status of a mesh for tests of tables, with a value for everything that a table shows."""

from weft.base.problem import Problem, Where
from weft.local.status import EdgeStatus, MeshStatus, PodPhase, PodStatus, PodSync, WorkloadStatus


def pod(
    workload: str, phase: PodPhase = PodPhase.READY, *, index: int = 0, namespace: str = "shop", **fields
) -> PodStatus:
    fields = {"sync": PodSync.SYNCED, "addresses": ("10.0.0.7", "fd00::7"), "pid": 4711, **fields}
    return PodStatus(name=f"{workload}-{index}", namespace=namespace, workload=workload, phase=phase, **fields)


def workload(name: str, *pods: PodStatus, namespace: str = "shop") -> WorkloadStatus:
    ready = sum(each.phase is PodPhase.READY for each in pods)
    return WorkloadStatus(name=name, namespace=namespace, replicas=len(pods), ready=ready, pods=pods)


def mesh(*workloads: WorkloadStatus, **fields) -> MeshStatus:
    return MeshStatus(name="shop", directory="/meshes/shop", pid=99, started=0.0, workloads=workloads, **fields)


HTTP_EDGE = EdgeStatus(
    source="shop/frontend",
    destination="payments.shop.svc.cluster.local",
    port=80,
    subset="v1",
    requests_per_second=18.04,
    success=0.995,
    p50_ms=1.25,
    p99_ms=140.4,
    requests=1804,
)
TCP_EDGE = EdgeStatus(
    source="shop/payments-v1", destination="ledger.shop.svc.cluster.local", port=7000, connections=321
)
PROBLEM = Problem(
    Where("payments.yaml", 66, "VirtualService shop/payments", "spec.http[0].retires"),
    "unknown field `retires`",
    "did you mean `retries`?",
)
