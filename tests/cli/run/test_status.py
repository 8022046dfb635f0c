import msgspec
import pytest

from weft.local.status import MeshStatus, PodPhase

pytestmark = pytest.mark.root


def test_shows_workloads_as_the_live_view_does(weft, mesh, mesh_directory):
    lines = weft("status", "--mesh", mesh).stdout.splitlines()
    assert lines[0].startswith(f"weft {mesh}  {mesh_directory}")
    assert [line.split()[:3] for line in lines if line.startswith(("talker", "job"))] == [
        ["job", "–", "Completed"],
        ["talker", "2/2", "Ready"],
    ]


def test_json_holds_all_of_it(weft, mesh, mesh_directory):
    status = msgspec.json.decode(weft("status", "-o", "json").stdout, type=MeshStatus)
    assert (status.name, status.directory) == (mesh, str(mesh_directory))
    assert [pod.phase for workload in status.workloads for pod in workload.pods] == [
        PodPhase.COMPLETED,
        PodPhase.READY,
        PodPhase.READY,
    ]


def test_the_mesh_may_be_an_argument(weft, mesh):
    assert weft("status", mesh).stdout.startswith(f"weft {mesh}  ")
    wrong = weft("status", f"{mesh}x")
    assert wrong.returncode == 1 and f"did you mean `{mesh}`?" in wrong.stderr


def test_watching_is_for_people(weft, mesh):
    refused = weft("status", mesh, "--watch", "-o", "json")
    assert refused.returncode == 2 and "--watch" in refused.stderr
