import msgspec

from weft.local.status import MeshStatus, PodPhase, PodStatus, WorkloadStatus


def test_survives_the_way_over_the_socket():
    pod = PodStatus(
        name="payments-v1-0", namespace="shop", workload="payments-v1", phase=PodPhase.BACK_OFF, exit_code=3
    )
    status = MeshStatus("shop", "/mesh", 1, 2.0, (WorkloadStatus("payments-v1", "shop", 1, 0, (pod,)),))
    assert msgspec.json.decode(msgspec.json.encode(status), type=MeshStatus) == status
    assert status.pods == (pod,)
