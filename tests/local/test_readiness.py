from __future__ import annotations

from datetime import timedelta

import pytest

from eventually import eventually
from local.pod_rig import running, web
from weft.local import probe
from weft.local.status import PodPhase
from weft.model.workload import HttpProbe, Probe

pytestmark = pytest.mark.root


async def test_readiness_follows_the_apps_own_response(bridge, tmp_path):
    probe = Probe(HttpProbe("http", "/ready"), period=timedelta(seconds=0.05), failure_threshold=2)
    broken = tmp_path / "broken"
    broken.touch()
    async with running(web(tmp_path, readiness=probe), bridge, tmp_path) as (pod, watcher, _):
        await watcher.until(lambda: pod.message == "not ready: GET /ready on port 8080: answered 503")
        assert pod.phase is PodPhase.RUNNING
        broken.unlink()
        await watcher.until(lambda: pod.ready)
        broken.touch()
        await watcher.until(lambda: not pod.ready)
        assert pod.status({}).restarts == 0
        broken.unlink()
        await watcher.until(lambda: pod.ready)


LISTENS_WHEN_ASKED = """
import os, socket, time
while not os.path.exists(os.environ["FLAG"]):
    time.sleep(0.01)
listening = socket.create_server(("%s", 8080), family=socket.%s)
time.sleep(600)
"""


async def test_an_app_that_listens_nowhere_is_not_ready_however_long_it_takes(bridge, tmp_path, monkeypatch):
    asked = []
    check = probe.check

    async def counted(*arguments):
        asked.append(await check(*arguments))
        return asked[-1]

    monkeypatch.setattr(probe, "_SLOWER", 0.5)  # probes quickly, as often as otherwise in minutes
    monkeypatch.setattr(probe, "check", counted)
    workload = web(tmp_path, command=("python3", "-c", LISTENS_WHEN_ASKED % ("0.0.0.0", "AF_INET")))
    async with running(workload, bridge, tmp_path) as (pod, watcher, _):
        await eventually(lambda: len(asked) >= 100, limit=60, every=0)
        assert (pod.phase, pod.message) == (PodPhase.RUNNING, "not ready: nothing listens on 8080")
        (tmp_path / "broken").touch()
        await watcher.until(lambda: pod.ready)
        assert (pod.message, pod.listening) == ("", frozenset({8080}))
        assert pod.instance().addresses == (str(pod.plan.addresses.ipv4),), "nobody calls it where it does not listen"


async def test_an_app_that_listens_on_its_second_address_alone_is_ready(bridge, tmp_path):
    (tmp_path / "broken").touch()
    workload = web(tmp_path, command=("python3", "-c", LISTENS_WHEN_ASKED % ("::", "AF_INET6")))
    async with running(workload, bridge, tmp_path) as (pod, watcher, _):
        await watcher.until(lambda: pod.ready)


async def test_an_app_that_listens_only_on_loopback_is_reported(bridge, tmp_path):
    (tmp_path / "broken").touch()
    workload = web(tmp_path, command=("python3", "-c", LISTENS_WHEN_ASKED % ("127.0.0.1", "AF_INET")))
    async with running(workload, bridge, tmp_path) as (pod, watcher, _):
        await watcher.until(lambda: "127.0.0.1 only" in pod.message)
        assert (pod.phase, pod.listening) == (PodPhase.RUNNING, frozenset())
