import msgspec

from weft.base.problem import Problem, Severity, Where
from weft.local.status import MeshStatus, PodPhase, PodStatus, RejectedVersion, WorkloadStatus

ERROR = Problem(Where(), "broken")
WEB = WorkloadStatus("web", "shop", 1, 1)
REJECTED = RejectedVersion("Workload shop/web", "Workload", "web.yaml", 4, is_in_force=False)
OUTDATED = RejectedVersion("Service shop/web", "Service", "web.yaml", 9, is_in_force=True)


def test_survives_the_way_over_the_socket():
    pod = PodStatus(
        name="payments-v1-0", namespace="shop", workload="payments-v1", phase=PodPhase.BACK_OFF, exit_code=3
    )
    status = MeshStatus("shop", "/mesh", 1, 2.0, (WorkloadStatus("payments-v1", "shop", 1, 0, (pod,)),))
    assert msgspec.json.decode(msgspec.json.encode(status), type=MeshStatus) == status
    assert status.pods == (pod,)


def test_a_mesh_lacks_workloads_that_are_rejected_or_whose_file_cannot_be_read():
    status = MeshStatus("shop", "/mesh", 1, 2.0)
    assert not status.lacks_workloads
    change = msgspec.structs.replace
    assert change(status, rejected=(REJECTED,), workloads=(WEB,)).lacks_workloads
    assert change(status, problems=(ERROR,)).lacks_workloads
    assert not change(status, problems=(ERROR,), workloads=(WEB,)).lacks_workloads
    assert not change(status, problems=(change(ERROR, severity=Severity.WARNING),)).lacks_workloads
    assert not change(status, rejected=(OUTDATED,), workloads=(WEB,)).lacks_workloads


def test_rejections_are_notable_if_their_errors_do_not_show_their_effect():
    without_effect = msgspec.structs.replace(OUTDATED, is_in_force=False)
    status = MeshStatus("shop", "/mesh", 1, 2.0, rejected=(REJECTED, OUTDATED, without_effect))
    assert [str(each) for each in status.notable_rejections] == [
        "web.yaml:4: Workload shop/web has no pods, because it is rejected",
        "web.yaml:9: an earlier version of Service shop/web is in force, because the newest one is rejected",
    ]
