from __future__ import annotations

import asyncio

import aiohttp
import grpc
import grpc.aio
import msgspec
import pytest
from tests.inspect.debug.test_stream import Istioctl

from eventually import eventually
from local.rig import CALLER, SERVICE, mesh, web
from weft.base.problem import Problem
from weft.local.client import fetch_debug
from weft.local.run_directory import socket_of
from weft.local.status import MeshStatus
from weft.model.proxy import PROXY_GID
from weft.netns import namespace

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("run_base")]


async def ask(rig, path: str, method: str = "GET", **arguments) -> tuple[int, bytes]:
    connector = aiohttp.UnixConnector(str(socket_of(rig.engine.name)))
    async with (
        aiohttp.ClientSession(connector=connector) as session,
        session.request(method, f"http://mesh{path}", **arguments) as answer,
    ):
        return answer.status, await answer.read()


async def test_the_socket_belongs_to_root_and_serves_the_whole_status():
    async with mesh(SERVICE, web(), CALLER) as rig:
        await rig.until_ready("caller-0", "web-0")
        assert socket_of(rig.engine.name).stat().st_mode & 0o777 == 0o600
        configuration = socket_of(rig.engine.name).with_name("xds.sock").stat()
        assert (configuration.st_mode & 0o777, configuration.st_uid, configuration.st_gid) == (0o660, 0, PROXY_GID)
        status = msgspec.json.decode((await ask(rig, "/status"))[1], type=MeshStatus)
        assert [(each.name, each.ready, each.replicas) for each in status.workloads] == [
            ("caller", 1, 1),
            ("web", 1, 1),
        ]
        pod = status.workloads[1].pods[0]
        assert (pod.sync, pod.phase) == ("SYNCED", "Ready") and pod.pid and pod.proxy_memory > 1_000_000
        assert msgspec.json.decode((await ask(rig, "/problems"))[1]) == []


async def test_envoys_admin_api_can_be_read_and_not_changed():
    async with mesh(SERVICE, web()) as rig:
        await rig.until_ready("web-0")
        status, body = await ask(rig, "/admin?pod=web&path=/config_dump&resource=dynamic_listeners")
        assert status == 200 and b"virtualInbound" in body
        for path in ("/quitquitquit", "/drain_listeners", "/logging", "/../stats", ""):
            status, body = await ask(rig, f"/admin?pod=web&path={path}")
            assert status == 400 and "that is read-only" in msgspec.json.decode(body, type=Problem).what
        assert await rig.pod("web").proxy.admin.ready()


async def test_only_what_a_proxy_logs_can_be_changed():
    async with mesh(SERVICE, web()) as rig:
        await rig.until_ready("web-0")
        status, body = await ask(rig, "/admin?pod=web&path=/logging&rbac=debug", "POST")
        assert status == 200 and b"  rbac: debug\n" in body
        for path in ("/quitquitquit", "/drain_listeners", "/config_dump", ""):
            status, body = await ask(rig, f"/admin?pod=web&path={path}", "POST")
            assert status == 400 and "that accepts POST here" in msgspec.json.decode(body, type=Problem).what


async def test_the_machines_owner_can_query_the_control_plane():
    async with mesh(SERVICE, web()) as rig:
        await rig.until_ready("web-0")
        status, body = await ask(rig, "/debug/syncz")
        (proxy,) = msgspec.json.decode(body)
        assert status == 200 and proxy["proxy"] == "web-0.shop" and proxy["istiod"] == rig.engine.name
        assert proxy["listener_sent"] == proxy["listener_acked"]
        assert "syncz" in msgspec.json.decode((await ask(rig, "/debug"))[1])
        assert (await ask(rig, "/debug/passwords")) == (404, b"404 page not found\n")
        assert await asyncio.to_thread(fetch_debug, rig.engine.name, "syncz", {"namespace": "other"}) == b"[]"
        compared = await asyncio.to_thread(fetch_debug, rig.engine.name, "diff", None, b'{"before": "@0"}')
        assert msgspec.json.decode(compared)["before"] == 0


async def test_only_the_owner_can_query_as_istioctl_does():
    async with mesh(SERVICE, web()) as rig:
        await rig.until_ready("web-0")
        directory = socket_of(rig.engine.name).with_name("owner")
        assert directory.stat().st_mode & 0o777 == 0o700 and directory.stat().st_uid == 0
        async with grpc.aio.insecure_channel(f"unix:{directory / 'xds.sock'}") as channel:
            istioctl = Istioctl(channel)
            await istioctl.ask("istio.io/debug/syncz")
            (resource,) = (await istioctl.read()).resources
            assert b"web-0.shop" in resource.value
        proxies = socket_of(rig.engine.name).with_name("xds.sock")
        async with grpc.aio.insecure_channel(f"unix:{proxies}") as channel:
            istioctl = Istioctl(channel)
            await istioctl.ask("istio.io/debug/syncz")
            assert await istioctl.code() is grpc.StatusCode.PERMISSION_DENIED


async def test_an_unknown_pod_is_an_error_with_a_hint():
    async with mesh(SERVICE) as rig:
        status, body = await ask(rig, "/logs?pod=nobody")
        assert status == 400
        assert msgspec.json.decode(body, type=Problem).hint == "list them with: weft ps"
        status, _ = await ask(rig, "/exec?pod=nobody", "POST", data=b"not json")
        assert status == 400


async def test_exec_in_a_completed_job_is_an_error_with_a_reason():
    job = CALLER.replace('[sleep, "1000"]', '["true"]') + "  restart: Never\n"
    async with mesh(job) as rig:
        await rig.until(lambda status: status.workloads and status.workloads[0].pods[0].phase == "Completed")
        await rig.until(lambda status: not namespace.exists(rig.pod("caller").namespace))
        status, body = await ask(rig, "/exec?pod=caller", "POST", data=b'["true"]')
        assert status == 400 and "is not running (Completed)" in msgspec.json.decode(body, type=Problem).what


async def test_a_follower_that_disconnects_does_not_affect_others():
    async with mesh(SERVICE, web()) as rig:
        await rig.until_ready("web-0")
        task = asyncio.ensure_future(ask(rig, "/logs?pod=web&follow=1"))
        await eventually(lambda: rig.pod("web").log.app._followers)
        task.cancel()
        rig.pod("web").log.app.write("still here")
        assert (await ask(rig, "/logs?pod=web&lines=1"))[1] == b"still here\n"
