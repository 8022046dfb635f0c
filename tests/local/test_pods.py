from __future__ import annotations

import asyncio
import os
import signal

import pytest

from eventually import eventually
from local.rig import CALLER, SERVICE, mesh, pods, web
from weft.local.error import LocalError
from weft.local.status import PodPhase
from weft.netns import namespace

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("run_base")]


async def test_pods_follow_the_replicas_and_the_others_are_not_touched():
    async with mesh(SERVICE, web(replicas=1)) as rig:
        await rig.until_ready("web-0")
        first = rig.pod("web-0").status({}).pid
        rig.write("1.yaml", web(replicas=3))
        await rig.until_ready("web-0", "web-1", "web-2")
        rig.write("1.yaml", web(replicas=1))
        status = await rig.until_ready("web-0")
        assert pods(status)[0].pid == first
        rig.write("1.yaml", web(replicas=0))
        await rig.until(lambda status: not pods(status))


async def test_a_deleted_file_takes_its_pods_away_and_a_new_one_brings_them_back_at_the_same_address():
    async with mesh(SERVICE, web(), CALLER) as rig:
        before = pods(await rig.until_ready("caller-0", "web-0"))
        (rig.directory / "1.yaml").unlink()
        status = await rig.until_ready("caller-0")
        assert [each.name for each in status.workloads] == ["caller"]
        assert [key.name for key in rig.engine._pods._replicas] == ["caller"]
        status, _ = await rig.fetch("caller", rig.address())
        assert status == 503
        rig.write("1.yaml", web())
        after = pods(await rig.until_ready("caller-0", "web-0"))
        assert [pod.addresses for pod in after] == [pod.addresses for pod in before]


async def test_a_changed_workload_is_rolled_out_without_a_failed_request():
    async with mesh(SERVICE, web("v1", replicas=2), CALLER) as rig:
        await rig.until_ready("caller-0", "web-0", "web-1")
        address = rig.address()
        answers: list[tuple[int, str]] = []
        done = asyncio.Event()

        async def call() -> None:
            while not done.is_set():
                answers.append(await rig.fetch("caller", address, x_wait="0.05"))

        calling = [asyncio.create_task(call()) for _ in range(4)]
        rig.write("1.yaml", web("v2", replicas=2))
        fresh = {("Ready", "v2")}

        def rolled_out(status) -> bool:
            now = {(pod.phase, dict(pod.plan.workload.environment)["VERSION"]) for pod in rig.engine.pods()
                   if pod.plan.workload.name == "web"}  # fmt: skip
            return now == fresh and len([p for p in pods(status) if p.workload == "web"]) == 2

        await rig.until(rolled_out)
        enough = len(answers) + 20
        await eventually(lambda: len(answers) >= enough)
        done.set()
        await asyncio.gather(*calling)
        assert {status for status, _ in answers} == {200}
        assert {body.split()[0] for _, body in answers} == {"v1", "v2"}
        assert all(body.startswith("v2") for _, body in answers[-10:])


async def test_a_new_version_that_cannot_start_leaves_the_old_one_serving():
    async with mesh(SERVICE, web("v1"), CALLER) as rig:
        await rig.until_ready("caller-0", "web-0")
        rig.write("1.yaml", web("v2").replace("[python3, server.py]", "[no-such-program]"))
        status = await rig.until(lambda status: any(pod.phase is PodPhase.BACK_OFF for pod in pods(status)))
        assert any("no-such-program" in problem.what for problem in status.problems)
        assert await rig.fetch("caller", rig.address()) == (200, "v1 127.0.0.6 web-0")
        rig.write("1.yaml", web("v3"))
        await rig.until(lambda status: [p.phase for p in pods(status)] == ["Ready", "Ready"])
        assert (await rig.fetch("caller", rig.address()))[1].startswith("v3")


@pytest.mark.parametrize("victim", ["app", "proxy"])
async def test_what_is_killed_comes_back_and_is_counted_and_others_are_not_touched(victim):
    async with mesh(SERVICE, web(replicas=2), CALLER) as rig:
        await rig.until_ready("caller-0", "web-0", "web-1")
        other = rig.pod("web-1").status({}).pid
        pod = rig.pod("web-0")
        os.kill(pod.proxy.pid if victim == "proxy" else pod.status({}).pid, signal.SIGKILL)
        await rig.until(lambda status: any(p.phase in ("BackOff", "Running") and p.message for p in pods(status)))
        assert await rig.fetch("caller", rig.address()) == (200, "v1 127.0.0.6 web-1")
        status = await rig.until_ready("caller-0", "web-0", "web-1")
        by_name = {each.name: each for each in pods(status)}
        assert (by_name["web-0"].restarts, by_name["web-0"].proxy_restarts) == ((1, 0) if victim == "app" else (0, 1))
        assert by_name["web-1"].pid == other
        assert {(await rig.fetch("caller", rig.address()))[1].split()[2] for _ in range(10)} == {"web-0", "web-1"}


async def test_a_job_calls_a_service_completes_and_its_proxy_is_gone():
    job = """
apiVersion: weft.dev/v1alpha1
kind: Workload
metadata: {name: job, namespace: shop}
spec:
  command: [python3, -c, "import urllib.request as r; print(r.urlopen('http://web').read().decode())"]
  restart: OnFailure
"""
    async with mesh(SERVICE, web(), job) as rig:
        await rig.until(lambda status: "Completed" in [pod.phase for pod in pods(status)])
        pod = rig.pod("job")
        assert pod.log.app.tail()[-1] == "v1 127.0.0.6 web-0"
        await rig.until(lambda status: not namespace.exists(pod.namespace))
        assert pod.proxy is not None and pod.proxy.pid == 0
        (rig.directory / "2.yaml").unlink()
        await rig.until_ready("web-0")


async def test_an_apps_very_first_connection_finds_its_proxy_there():
    job = """
apiVersion: weft.dev/v1alpha1
kind: Workload
metadata: {name: hasty, namespace: shop}
spec:
  command: [python3, -S, -c, "import socket; socket.create_connection(('ADDRESS', 80), 0.5).close()"]
  restart: Never
"""
    async with mesh(SERVICE, web()) as rig:
        await rig.until_ready("web-0")
        rig.write("hasty.yaml", job.replace("ADDRESS", rig.address()))
        status = await rig.until(lambda status: [p for p in pods(status) if p.phase in ("Completed", "Failed")])
        assert [pod.phase for pod in pods(status)] == ["Completed", "Ready"], rig.pod("hasty").log.app.tail()


async def test_a_pod_is_found_by_its_name_or_as_a_ready_one_of_its_workload():
    elsewhere = CALLER.replace("namespace: shop", "namespace: away").replace("name: caller,", "name: web,")
    broken = web(replicas=2).replace(
        "[python3, server.py]", '[sh, -c, "test $POD_NAME = web-1 && exec python3 server.py"]'
    )
    async with mesh(SERVICE, broken, elsewhere) as rig:
        await rig.until(lambda _: any(pod.ready for pod in rig.engine.pods() if pod.plan.key == "shop/web-1"))
        assert rig.pod("shop/web").plan.key == "shop/web-1"
        assert rig.pod("shop/web-0").plan.key == "shop/web-0"
        assert rig.pod("away/web").plan.key == "away/web-0"
        for nobody in ("web-7", "away/web-1", "web/shop"):
            with pytest.raises(LocalError, match=f"no pod or workload `{nobody}`.*weft ps"):
                rig.pod(nobody)


async def test_a_pod_for_which_no_user_is_left_is_made_when_there_is_one(caplog):
    async with mesh(CALLER) as rig:
        await rig.until_ready("caller-0")
        users = rig.engine._run_directory.users
        mine, rig.engine._pods._uids = rig.engine._pods._uids, set(users)
        rig.write("1.yaml", web())
        await rig.until(lambda _: f"no UID is free for the pod: all {len(users)} of the mesh are in use" in caplog.text)
        rig.engine._pods._uids = mine
        await rig.until_ready("caller-0", "web-0")
        assert rig.pod("web").plan.uid != rig.pod("caller").plan.uid


async def test_a_removed_pod_releases_its_directory_addresses_and_user():
    async with mesh(SERVICE, web(), CALLER) as rig:
        await rig.until_ready("caller-0", "web-0")
        gone, next_free = rig.pod("web"), web().replace("name: web,", "name: other,")
        assert gone.place.directory.exists()
        (rig.directory / "1.yaml").unlink()
        await rig.until_ready("caller-0")
        assert not gone.place.directory.exists()
        assert rig.engine.lookups._namespaces.keys() == set(rig.pod("caller").plan.addresses.texts)
        rig.write("1.yaml", next_free)
        await rig.until_ready("caller-0", "other-0")
        assert rig.pod("other").plan.uid == gone.plan.uid
