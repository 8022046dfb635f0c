import msgspec

from cli.statuses import PROBLEM, mesh, pod, workload
from weft.cli.print.status_changes import changes
from weft.local.status import PodPhase, RejectedVersion


def test_prints_every_pod_once_at_the_beginning():
    status = mesh(workload("a", pod("a", PodPhase.STARTING)), workload("b", pod("b", PodPhase.READY)))
    assert list(changes(None, status)) == ["shop/a-0: Starting at 10.0.0.7", "shop/b-0: Ready"]


def test_prints_nothing_if_nothing_changed():
    status = mesh(workload("a", pod("a")), problems=(PROBLEM,))
    assert list(changes(status, msgspec.structs.replace(status, push=9))) == []


def test_prints_why_a_pod_waits_and_how_often_it_restarted():
    before = mesh(workload("a", pod("a", PodPhase.READY)))
    waits = mesh(workload("a", pod("a", PodPhase.BACK_OFF, message="killed by SIGKILL, next start in 1 s")))
    again = mesh(workload("a", pod("a", PodPhase.RUNNING, restarts=1)))
    assert list(changes(before, waits)) == ["shop/a-0: BackOff – killed by SIGKILL, next start in 1 s"]
    assert list(changes(waits, again)) == ["shop/a-0: Running (restart 1)"]


def test_prints_removed_pods_and_proxy_restarts():
    before = mesh(workload("a", pod("a", PodPhase.RUNNING), pod("a", PodPhase.RUNNING, index=1)))
    after = mesh(workload("a", pod("a", PodPhase.RUNNING, proxy_restarts=1)))
    assert list(changes(before, after)) == ["shop/a-0: proxy restarted (1)", "shop/a-1: gone"]


def test_prints_a_problem_when_it_appears_and_when_it_is_solved():
    well = mesh(workload("a", pod("a")))
    unwell = mesh(workload("a", pod("a")), problems=(PROBLEM,))
    assert list(changes(well, unwell)) == [str(PROBLEM)]
    assert list(changes(unwell, well)) == [f"solved: {PROBLEM.where}: {PROBLEM.what}"]


def test_prints_once_that_all_pods_are_ready_or_completed():
    before = mesh(workload("a", pod("a", PodPhase.RUNNING)), workload("job", pod("job", PodPhase.COMPLETED)))
    after = mesh(workload("a", pod("a", PodPhase.READY)), workload("job", pod("job", PodPhase.COMPLETED)))
    assert list(changes(before, after))[-1] == "all 2 pods are ready or completed"
    assert list(changes(after, after)) == []


def test_one_pod_is_not_all_pods():
    assert (
        list(changes(None, mesh(workload("a", pod("a", PodPhase.READY)))))[-1] == "the only pod is ready or completed"
    )


def test_prints_an_earlier_version_that_stays_in_force_once():
    outdated = RejectedVersion("Service shop/web", "Service", "web.yaml", 9, is_in_force=True)
    before, after = mesh(), mesh(rejected=(outdated,))
    assert list(changes(before, after)) == [str(outdated)]
    assert list(changes(after, after)) == []
