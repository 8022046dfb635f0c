from __future__ import annotations

import asyncio
import os
import signal
from datetime import timedelta

import pytest

from eventually import eventually
from local.pod_rig import running, web
from weft.local import pod as pod_module
from weft.local.blocking import to_its_end
from weft.local.pod import LocalPod
from weft.local.run_directory import end_processes, has_ended
from weft.local.status import PodPhase
from weft.model.workload import HttpProbe, Probe, RestartPolicy
from weft.netns import namespace

pytestmark = pytest.mark.root


async def fetch(bridge, pod: LocalPod, path: str = "/") -> str:
    sock = namespace.socket_in(bridge.namespace)
    await asyncio.get_running_loop().sock_connect(sock, (str(pod.plan.addresses.ipv4), 8080))
    reader, writer = await asyncio.open_connection(sock=sock)
    writer.write(f"GET {path} HTTP/1.0\r\n\r\n".encode())
    answer = (await reader.read()).decode()
    writer.close()
    return answer.partition("\r\n\r\n")[2]


async def test_an_app_runs_under_its_own_user_and_serves_at_its_own_address(bridge, tmp_path):
    async with running(web(tmp_path), bridge, tmp_path) as (pod, watcher, _):
        await watcher.until(lambda: pod.ready)
        uid, caller, name = (await fetch(bridge, pod)).split()
        assert (uid, caller, name) == ("10007", "10.244.0.1", "web-0")
        status = pod.status({})
        assert status.pid and status.addresses == pod.plan.addresses.texts
        assert pod.instance().ready
        assert watcher.phases == [PodPhase.RUNNING, PodPhase.READY]
    assert watcher.phases[-1] is PodPhase.ENDING
    assert any("request" in line for line in pod.log.app.tail())


async def test_a_crash_is_followed_by_back_off_and_another_start(bridge, tmp_path):
    async with running(web(tmp_path), bridge, tmp_path) as (pod, watcher, _):
        await watcher.until(lambda: pod.ready)
        first = pod.status({}).pid
        await fetch(bridge, pod, "/crash")
        await watcher.until(lambda: pod.phase is PodPhase.BACK_OFF)
        assert "exited with status 3; starts again in 0." in pod.message
        assert not pod.instance().ready
        await watcher.until(lambda: pod.ready)
        status = pod.status({})
        assert (status.restarts, status.exit_code) == (1, 3) and status.pid != first


async def test_the_status_of_a_killed_app_names_the_signal(bridge, tmp_path):
    async with running(web(tmp_path), bridge, tmp_path) as (pod, watcher, _):
        await watcher.until(lambda: pod.ready)
        os.kill(pod.status({}).pid, signal.SIGKILL)
        await watcher.until(lambda: "killed by signal 9" in pod.message)


@pytest.mark.parametrize("policy", [RestartPolicy.NEVER, RestartPolicy.ON_FAILURE])
async def test_a_job_completes_and_leaves_only_its_log(bridge, tmp_path, policy):
    job = web(tmp_path, command=("sh", "-c", "echo done; exit 0"), ports=(), restart=policy)
    async with running(job, bridge, tmp_path) as (pod, _, task):
        async with asyncio.timeout(20):
            await task
        assert (pod.phase, pod.exit_code) == (PodPhase.COMPLETED, 0)
        assert pod.log.app.tail() == ["done"]
        assert not namespace.exists(pod.namespace)


async def test_a_failed_job_is_restarted_only_if_its_policy_allows(bridge, tmp_path):
    failing = web(tmp_path, command=("sh", "-c", "exit 4"), ports=(), restart=RestartPolicy.NEVER)
    async with running(failing, bridge, tmp_path) as (pod, watcher, _):
        await watcher.until(lambda: pod.ended)
        assert (pod.phase, pod.exit_code, pod.restarts) == (PodPhase.FAILED, 4, 0)
    script = f"test -e {tmp_path}/again && exit 0; touch {tmp_path}/again; exit 4"
    again = web(tmp_path, command=("sh", "-c", script), ports=(), restart=RestartPolicy.ON_FAILURE)
    async with running(again, bridge, tmp_path, "again-0") as (pod, watcher, _):
        await watcher.until(lambda: pod.ended)
        assert (pod.phase, pod.restarts) == (PodPhase.COMPLETED, 1)


async def test_a_missing_command_is_reported_and_retried(bridge, tmp_path):
    async with running(web(tmp_path, command=("no-such-program",)), bridge, tmp_path) as (pod, watcher, _):
        await watcher.until(lambda: pod.phase is PodPhase.BACK_OFF)
        assert pod.trouble.startswith("program `no-such-program` is not in /")
        assert pod.message.startswith(f"{pod.trouble}; starts again in")
        assert pod.begun.is_set()


async def test_a_start_lasts_until_the_app_is_ready(bridge, tmp_path, monkeypatch):
    monkeypatch.setattr(pod_module, "START", 3600.0)
    ready = Probe(HttpProbe("http", "/ready"), period=timedelta(seconds=0.05))
    (tmp_path / "broken").touch()
    async with running(web(tmp_path, readiness=ready), bridge, tmp_path) as (pod, watcher, _):
        await watcher.until(lambda: pod.message == "not ready: GET /ready on port 8080: answered 503")
        assert not pod.begun.is_set()
        (tmp_path / "broken").unlink()
        await watcher.until(lambda: pod.ready)
        assert pod.begun.is_set()


async def test_a_start_of_an_app_that_does_not_become_ready_has_a_limit(bridge, tmp_path, monkeypatch):
    monkeypatch.setattr(pod_module, "START", 0.01)
    ready = Probe(HttpProbe("http", "/ready"), period=timedelta(seconds=0.05))
    (tmp_path / "broken").touch()
    async with running(web(tmp_path, readiness=ready), bridge, tmp_path) as (pod, _, _):
        async with asyncio.timeout(60):
            await pod.begun.wait()
        assert pod.phase is PodPhase.RUNNING


async def test_an_app_that_ignores_sigterm_and_its_children_are_ended(bridge, tmp_path):
    script = "trap '' TERM; sleep 1000 & echo $!; wait; sleep 1000"
    async with running(web(tmp_path, command=("sh", "-c", script), ports=()), bridge, tmp_path) as (pod, _, _):
        await eventually(pod.log.app.tail)
        inside = namespace.processes_in(pod.namespace)
        assert len(inside) >= 2
    assert all(has_ended(pid) for pid in inside)


async def test_an_app_that_leaves_children_is_seen_to_end_and_they_end_with_it(bridge, tmp_path):
    script = "sleep 1000 & echo $!; setsid sleep 1000 & echo $!; wait"
    async with running(web(tmp_path, command=("sh", "-c", script), ports=()), bridge, tmp_path) as (pod, watcher, _):
        await eventually(lambda: len(pod.log.app.tail()) >= 2)
        children = [int(line) for line in pod.log.app.tail()]
        os.kill(pod.status({}).pid, signal.SIGKILL)
        await watcher.until(lambda: "killed by signal 9" in pod.message)
        assert all(has_ended(pid) for pid in children)


async def test_a_cancellation_while_an_ended_app_is_cleaned_up_takes_effect(bridge, tmp_path, monkeypatch):
    heard = asyncio.Event()

    async def cancelled_meanwhile(work):
        await to_its_end(work)
        if getattr(work, "func", None) is end_processes and not task.cancelling():  # the app has ended on its own
            await heard.wait()
            task.cancel()

    async with running(web(tmp_path, command=("true",), ports=()), bridge, tmp_path) as (pod, _, task):
        pump = pod.log.app.pump

        async def hear(stream):
            await pump(stream)
            heard.set()

        monkeypatch.setattr(pod.log.app, "pump", hear)
        monkeypatch.setattr("weft.local.pod.to_its_end", cancelled_meanwhile)
        async with asyncio.timeout(30):
            await asyncio.wait({task})
        assert task.cancelled()


@pytest.mark.parametrize("steps", [0, 1, 3, 6, 12])
async def test_a_start_that_is_cancelled_leaves_nothing(bridge, tmp_path, steps):
    async with running(web(tmp_path), bridge, tmp_path) as (pod, _, task):
        for _ in range(steps):
            await asyncio.sleep(0.005)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not namespace.exists(pod.namespace)
