"""Pods start, fail, change and end, with hardly an effect on requests."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from e2e.mesh import proxy_process, tell
from e2e.objects import http_service, text, workload
from eventually import eventually
from weft.local.status import PodPhase

pytestmark = pytest.mark.asyncio(loop_scope="module")


def app(control, version="v1", replicas=2, **spec):
    return text(
        workload("app", control=control, serve="http=8080", version=version, replicas=replicas, **spec),
        http_service("app"),
    )


def program(name, control, source, restart):
    return workload(name, control=control, command=[sys.executable, "-c", source], restart=restart)


def files(control):
    job = "import urllib.request as r; print(r.urlopen('http://app/from-the-job', timeout=20).read())"
    return {
        "client.yaml": text(workload("client", control=control)),
        "app.yaml": app(control),
        "single.yaml": text(workload("single", control=control, serve="http=8080"), http_service("single")),
        "job.yaml": text(program("job", control, f"import time\n{RETRYING.format(job)}", "OnFailure")),
    }


# The job may start before the app is ready, as in every mesh, so it retries its first request.
RETRYING = """
for _ in range(100):
    try:
        {}
        break
    except OSError:
        time.sleep(0.2)
else:
    raise SystemExit(1)
"""


def ready(mesh, name, count):
    pods = mesh.pods(name)
    return len(pods) == count and all(pod.phase is PodPhase.READY for pod in pods)


async def test_a_job_completes_through_the_mesh(mesh):
    await eventually(lambda: mesh.pods("job")[0].phase is PodPhase.COMPLETED)
    pod = mesh.pods("job")[0]
    assert (pod.exit_code, pod.pid) == (0, 0)
    assert await mesh.received("app", "/from-the-job") == 1


async def test_jobs_that_fail_are_tried_again_or_shown_as_failed(mesh):
    failing = "raise SystemExit(3)"
    mesh.write("failing.yaml", text(program("never", mesh.sockets, failing, "Never"),
                                    program("again", mesh.sockets, failing, "OnFailure")))  # fmt: skip
    await eventually(lambda: mesh.pods("never") and mesh.pods("never")[0].phase is PodPhase.FAILED)
    assert mesh.pods("never")[0].exit_code == 3
    await eventually(lambda: mesh.pods("again") and mesh.pods("again")[0].restarts >= 2)
    assert mesh.pods("again")[0].exit_code == 3
    mesh.write("failing.yaml", None)
    await eventually(lambda: not mesh.pods("never") and not mesh.pods("again"))


async def test_an_envoy_that_is_killed_comes_back(mesh):
    pod = mesh.pod("single")
    pid, _ = proxy_process(pod)
    os.kill(pid, signal.SIGKILL)
    await eventually(lambda: mesh.pod("single").proxy_restarts == 1)

    async def answers():
        return (await mesh.get("client", "http://single/after"))["status"] == 200

    await eventually(answers)
    await eventually(lambda: ready(mesh, "single", 1))
    assert proxy_process(mesh.pod("single"))[0] != pid
    # The application itself was not restarted.
    assert (mesh.pod("single").pid, mesh.pod("single").restarts) == (pod.pid, 0)
    assert {answer["status"] for answer in await mesh.requests("client", "http://single/", 20)} == {200}


async def test_a_callers_envoy_that_is_killed_comes_back_with_its_config(mesh):
    os.kill(proxy_process(mesh.pod("client"))[0], signal.SIGKILL)

    async def answers():
        return (await mesh.get("client", "http://app/"))["status"] == 200

    await eventually(lambda: mesh.pod("client").proxy_restarts == 1)
    await eventually(answers)


async def test_an_app_that_dies_is_shown_and_started_again(mesh):
    pod = mesh.pod("single")
    phases = set()

    def seen(phase):
        phases.add(mesh.pod("single").phase)
        return phase in phases

    os.kill(pod.pid, signal.SIGKILL)
    await eventually(lambda: seen(PodPhase.BACK_OFF))
    assert "signal 9" in mesh.pod("single").message
    await eventually(lambda: mesh.pod("single").phase is PodPhase.READY)
    now = mesh.pod("single")
    assert (now.restarts, now.exit_code, now.addresses) == (1, -9, pod.addresses)
    assert now.pid != pod.pid

    async def answers():
        return (await mesh.get("client", "http://single/"))["status"] == 200

    await eventually(answers)


async def test_the_pause_between_restarts_grows(mesh):
    mesh.write("crashing.yaml", text(program("crashing", mesh.sockets, "raise SystemExit(1)", "Always")))
    pauses = set()

    def three():
        for pod in mesh.pods("crashing"):
            if "starts again in" in pod.message:
                pauses.add(float(pod.message.split("starts again in ")[1].split()[0]))
        return len(pauses) >= 3

    await eventually(three)
    assert max(pauses) > min(pauses)
    mesh.write("crashing.yaml", None)
    await eventually(lambda: not mesh.pods("crashing"))


async def test_the_pod_status_shows_why_a_command_cannot_start(mesh):
    mesh.write("missing.yaml", text(workload("missing", control=mesh.sockets, command=["/no/such/program"])))
    await eventually(lambda: mesh.pods("missing") and mesh.pods("missing")[0].phase is PodPhase.BACK_OFF)
    assert "/no/such/program" in mesh.pods("missing")[0].message
    mesh.write("missing.yaml", None)
    await eventually(lambda: not mesh.pods("missing"))


async def test_a_pod_that_is_not_ready_gets_no_requests(mesh):
    flag = mesh.sockets / "ready"
    probe = {"exec": {"command": ["test", "-e", str(flag)]}, "period": "100ms", "failureThreshold": 1}
    document = text(
        workload("careful", control=mesh.sockets, serve="http=8080", readiness=probe), http_service("careful")
    )
    await mesh.edit({"careful.yaml": document})
    await eventually(lambda: mesh.pods("careful") and mesh.pods("careful")[0].phase is PodPhase.RUNNING)
    assert (await mesh.get("client", "http://careful/"))["status"] == 503

    async def answers(status):
        return (await mesh.get("client", "http://careful/"))["status"] == status

    flag.touch()
    await eventually(lambda: answers(200))
    flag.unlink()
    await eventually(lambda: answers(503))
    assert mesh.pods("careful")[0].restarts == 0
    mesh.write("careful.yaml", None)
    await eventually(lambda: not mesh.pods("careful"))


async def changed_under_load(mesh, content, done, name):
    """Uses POST, which no proxy on the way retries."""
    await mesh.tell("client", "load_start", name=name, url="http://app/load", parallel=4, pause=0.002, method="POST")
    mesh.write("app.yaml", content)
    await eventually(done, limit=60)
    seen = await mesh.tell("client", "load_stop", name=name)
    assert set(seen["statuses"]) == {"200"}, seen["failures"]
    return seen


async def test_a_rolling_change_fails_no_request(mesh):
    def done():
        return ready(mesh, "app", 2) and not before & {pod.pid for pod in mesh.pods("app")}

    before = {pod.pid for pod in mesh.pods("app")}
    seen = await changed_under_load(mesh, app(mesh.sockets, "v2"), done, "rolling")
    assert set(seen["versions"]) == {"v1", "v2"}
    answers = await mesh.requests("client", "http://app/", 20)
    assert {(answer["status"], answer["body"]["version"]) for answer in answers} == {(200, "v2")}


async def test_scaling_up_and_down_fails_no_request(mesh):
    seen = await changed_under_load(
        mesh, app(mesh.sockets, "v2", replicas=4), lambda: ready(mesh, "app", 4), "scaling up"
    )

    async def all_used():
        answers = await mesh.requests("client", "http://app/", 40)
        return len({answer["body"]["pod"] for answer in answers}) == 4

    await eventually(all_used)
    seen = await changed_under_load(
        mesh, app(mesh.sockets, "v2", replicas=1), lambda: ready(mesh, "app", 1), "scaling down"
    )
    assert sum(seen["statuses"].values()) > 20


async def test_a_workload_with_no_replicas_is_unavailable_until_it_has_some(mesh):
    async def answers(status):
        return (await mesh.get("client", "http://app/"))["status"] == status

    mesh.write("app.yaml", app(mesh.sockets, "v2", replicas=0))
    await eventually(lambda: not mesh.pods("app"))
    await eventually(lambda: answers(503))
    mesh.write("app.yaml", app(mesh.sockets, "v2", replicas=1))
    await eventually(lambda: answers(200))


async def test_a_deleted_workload_is_gone_with_all_its_processes(mesh):
    document = text(workload("passing", control=mesh.sockets, serve="http=8080"))
    mesh.write("passing.yaml", document)
    await eventually(lambda: ready(mesh, "passing", 1))
    pod = mesh.pod("passing")
    pids = [pod.pid, proxy_process(pod)[0]]
    mesh.write("passing.yaml", None)
    await eventually(lambda: not mesh.pods("passing"))
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]


async def test_a_request_under_way_is_finished_when_its_pod_ends(mesh):
    mesh.write("slow.yaml", text(workload("slow", control=mesh.sockets, serve="http=8080"), http_service("slow")))
    await eventually(lambda: ready(mesh, "slow", 1))
    pod = mesh.pod("slow").name
    await tell(mesh.sockets, pod, "script", path="/long", forever={"delay": 1.5})

    async def answers():
        return (await mesh.get("client", "http://slow/"))["status"] == 200

    await eventually(answers)
    asking = asyncio.create_task(mesh.get("client", "http://slow/long"))

    async def arrived():
        return (await tell(mesh.sockets, pod, "received")).get("/long")

    await eventually(arrived)
    mesh.write("slow.yaml", text(http_service("slow")))
    assert (await asking)["status"] == 200
    await eventually(lambda: not mesh.pods("slow"))
    mesh.write("slow.yaml", None)
