from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import asynccontextmanager
from datetime import timedelta
from ipaddress import IPv4Interface, IPv6Interface
from pathlib import Path

import pytest

from weft.local import probe
from weft.local.addresses import Addresses
from weft.local.blocking import to_its_end
from weft.local.pod import Place, Pod, PodPlan
from weft.local.run_directory import end_processes, has_ended
from weft.local.status import Phase
from weft.model.workload import HttpProbe, Probe, RestartPolicy, Workload, WorkloadPort
from weft.netns import links, namespace

pytestmark = pytest.mark.root

SERVER = """
import http.server, os, socketserver
class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        broken = os.path.exists(os.environ["FLAG"])
        body = f"{os.getuid()} {self.client_address[0]} {os.environ['POD_NAME']}".encode()
        self.send_response(503 if broken and self.path == "/ready" else 200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        if self.path == "/crash":
            os._exit(3)
    def log_message(self, *arguments): print("request", *arguments[1:], flush=True)
Server(("", 8080), Handler).serve_forever()
"""


@pytest.fixture(autouse=True)
def open_directory(tmp_path):
    """A directory closed to the app's user would be shown to it as it is now, for ever."""
    tmp_path.chmod(0o777)


@pytest.fixture
def bridge():
    made = namespace.make(f"wt-pod-{os.urandom(3).hex()}.mesh")
    bridge = links.Bridge(made, IPv4Interface("10.244.0.1/16"), IPv6Interface("fd00:10:244::1/64"))
    links.make_bridge(bridge)
    yield bridge
    namespace.delete(made)


class Watcher:
    """Hears what a pod tells, and waits for what a test wants to see."""

    def __init__(self) -> None:
        self.changed = asyncio.Condition()
        self.phases: list[Phase] = []
        self.tasks: set[asyncio.Task[None]] = set()

    def __call__(self, pod: Pod) -> None:
        if not self.phases or self.phases[-1] is not pod.phase:
            self.phases.append(pod.phase)

        async def notify() -> None:
            async with self.changed:
                self.changed.notify_all()

        task = asyncio.ensure_future(notify())
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def until(self, condition, timeout: float = 20) -> None:
        async with asyncio.timeout(timeout), self.changed:
            await self.changed.wait_for(condition)


class Nobody:
    """A pod without a proxy needs no identity."""

    async def give(self, plan, network):
        raise AssertionError("this pod has no proxy")

    async def take(self, plan):
        return

    def status(self, plan):
        return None


@asynccontextmanager
async def running(workload: Workload, bridge: links.Bridge, directory: Path, name: str = "web-0"):
    async def settled() -> None:
        return

    home = directory / name
    home.mkdir()
    place = Place(
        bridge=bridge,
        namespace_name=bridge.namespace.name.replace(".mesh", f".{name}"),
        directory=home,
        visible=(sys.prefix, sys.base_prefix, str(directory)),
        path=f"{Path(sys.executable).parent}:/usr/bin:/bin",
        domain="cluster.local",
        identities=Nobody(),
        settled=settled,
    )
    plan = PodPlan(name=name, workload=workload, addresses=Addresses().pods.take(name), uid=10007)
    watcher = Watcher()
    pod = Pod(plan, place, no_proxy, watcher)
    task = asyncio.ensure_future(pod.run())
    try:
        yield pod, watcher, task
    finally:
        pod.end()
        async with asyncio.timeout(20):
            await asyncio.wait({task})
        assert not namespace.exists(pod.namespace)


def no_proxy(*arguments):
    raise AssertionError("this pod has no proxy")


def web(directory: Path, **fields: object) -> Workload:
    values = {
        "name": "web",
        "namespace": "shop",
        "command": ("python3", "-c", SERVER),
        "environment": (("FLAG", str(directory / "broken")),),
        "ports": (WorkloadPort(8080, "http"),),
        "inject": False,
        "working_directory": str(directory),
    }
    return Workload(**{**values, **fields})


async def fetch(bridge, pod: Pod, path: str = "/") -> str:
    sock = namespace.socket_in(bridge.namespace)
    await asyncio.get_running_loop().sock_connect(sock, (str(pod.plan.addresses.ipv4), 8080))
    reader, writer = await asyncio.open_connection(sock=sock)
    writer.write(f"GET {path} HTTP/1.0\r\n\r\n".encode())
    answer = (await reader.read()).decode()
    writer.close()
    return answer.partition("\r\n\r\n")[2]


async def test_an_app_runs_under_its_own_user_and_answers_at_its_own_address(bridge, tmp_path):
    async with running(web(tmp_path), bridge, tmp_path) as (pod, watcher, _):
        await watcher.until(lambda: pod.ready)
        uid, caller, name = (await fetch(bridge, pod)).split()
        assert (uid, caller, name) == ("10007", "10.244.0.1", "web-0")
        status = pod.status({})
        assert status.pid and status.addresses == pod.plan.addresses.texts
        assert pod.instance().ready
        assert watcher.phases == [Phase.RUNNING, Phase.READY]
    assert watcher.phases[-1] is Phase.ENDING
    assert any("request" in line for line in pod.log.app.tail())


async def test_a_crash_is_followed_by_back_off_and_another_start(bridge, tmp_path):
    async with running(web(tmp_path), bridge, tmp_path) as (pod, watcher, _):
        await watcher.until(lambda: pod.ready)
        first = pod.status({}).pid
        await fetch(bridge, pod, "/crash")
        await watcher.until(lambda: pod.phase is Phase.BACK_OFF)
        assert "exited with status 3; starts again in 0." in pod.message
        assert not pod.instance().ready
        await watcher.until(lambda: pod.ready)
        status = pod.status({})
        assert (status.restarts, status.exit_code) == (1, 3) and status.pid != first


async def test_a_killed_app_is_said_to_be_killed(bridge, tmp_path):
    async with running(web(tmp_path), bridge, tmp_path) as (pod, watcher, _):
        await watcher.until(lambda: pod.ready)
        os.kill(pod.status({}).pid, signal.SIGKILL)
        await watcher.until(lambda: "killed by signal 9" in pod.message)


async def test_readiness_comes_and_goes_with_the_apps_own_answer(bridge, tmp_path):
    probe = Probe(HttpProbe("http", "/ready"), period=timedelta(seconds=0.05), failure_threshold=2)
    broken = tmp_path / "broken"
    broken.touch()
    async with running(web(tmp_path, readiness=probe), bridge, tmp_path) as (pod, watcher, _):
        await watcher.until(lambda: pod.message == "not ready: GET /ready on port 8080: answered 503")
        assert pod.phase is Phase.RUNNING
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

    monkeypatch.setattr(probe, "_SLOWER", 0.5)  # as many questions as in minutes
    monkeypatch.setattr(probe, "check", counted)
    workload = web(tmp_path, command=("python3", "-c", LISTENS_WHEN_ASKED % ("0.0.0.0", "AF_INET")))
    async with running(workload, bridge, tmp_path) as (pod, watcher, _):
        async with asyncio.timeout(20):
            while len(asked) < 100:
                await asyncio.sleep(0)
        assert (pod.phase, pod.message) == (Phase.RUNNING, "not ready: nothing listens on 8080")
        (tmp_path / "broken").touch()
        await watcher.until(lambda: pod.ready)
        assert (pod.message, pod.listening) == ("", frozenset({8080}))


async def test_an_app_that_listens_on_its_second_address_alone_is_ready(bridge, tmp_path):
    (tmp_path / "broken").touch()
    workload = web(tmp_path, command=("python3", "-c", LISTENS_WHEN_ASKED % ("::", "AF_INET6")))
    async with running(workload, bridge, tmp_path) as (pod, watcher, _):
        await watcher.until(lambda: pod.ready)


async def test_an_app_that_listens_on_the_loopback_address_alone_is_told_so(bridge, tmp_path):
    (tmp_path / "broken").touch()
    workload = web(tmp_path, command=("python3", "-c", LISTENS_WHEN_ASKED % ("127.0.0.1", "AF_INET")))
    async with running(workload, bridge, tmp_path) as (pod, watcher, _):
        await watcher.until(lambda: "127.0.0.1 only" in pod.message)
        assert (pod.phase, pod.listening) == (Phase.RUNNING, frozenset())


@pytest.mark.parametrize("policy", [RestartPolicy.NEVER, RestartPolicy.ON_FAILURE])
async def test_a_job_completes_and_leaves_only_its_log(bridge, tmp_path, policy):
    job = web(tmp_path, command=("sh", "-c", "echo done; exit 0"), ports=(), restart=policy)
    async with running(job, bridge, tmp_path) as (pod, _, task):
        async with asyncio.timeout(20):
            await task
        assert (pod.phase, pod.exit_code) == (Phase.COMPLETED, 0)
        assert pod.log.app.tail() == ["done"]
        assert not namespace.exists(pod.namespace)


async def test_a_job_that_fails_is_tried_again_only_if_its_policy_says_so(bridge, tmp_path):
    failing = web(tmp_path, command=("sh", "-c", "exit 4"), ports=(), restart=RestartPolicy.NEVER)
    async with running(failing, bridge, tmp_path) as (pod, watcher, _):
        await watcher.until(lambda: pod.ended)
        assert (pod.phase, pod.exit_code, pod.restarts) == (Phase.FAILED, 4, 0)
    script = f"test -e {tmp_path}/again && exit 0; touch {tmp_path}/again; exit 4"
    again = web(tmp_path, command=("sh", "-c", script), ports=(), restart=RestartPolicy.ON_FAILURE)
    async with running(again, bridge, tmp_path, "again-0") as (pod, watcher, _):
        await watcher.until(lambda: pod.ended)
        assert (pod.phase, pod.restarts) == (Phase.COMPLETED, 1)


async def test_a_command_that_does_not_exist_is_said_and_tried_again(bridge, tmp_path):
    async with running(web(tmp_path, command=("no-such-program",)), bridge, tmp_path) as (pod, watcher, _):
        await watcher.until(lambda: pod.phase is Phase.BACK_OFF)
        assert pod.trouble.startswith("program `no-such-program` is not in /")
        assert pod.message.startswith(f"{pod.trouble}; starts again in")
        assert pod.begun.is_set()


async def test_an_app_that_ignores_sigterm_and_its_children_are_ended(bridge, tmp_path):
    script = "trap '' TERM; sleep 1000 & echo $!; wait; sleep 1000"
    async with running(web(tmp_path, command=("sh", "-c", script), ports=()), bridge, tmp_path) as (pod, _, _):
        while not pod.log.app.tail():
            await asyncio.sleep(0.01)
        inside = namespace.processes_in(pod.namespace)
        assert len(inside) >= 2
    assert all(has_ended(pid) for pid in inside)


async def test_an_app_that_leaves_children_is_seen_to_end_and_they_end_with_it(bridge, tmp_path):
    script = "sleep 1000 & echo $!; setsid sleep 1000 & echo $!; wait"
    async with running(web(tmp_path, command=("sh", "-c", script), ports=()), bridge, tmp_path) as (pod, watcher, _):
        while len(pod.log.app.tail()) < 2:
            await asyncio.sleep(0.01)
        children = [int(line) for line in pod.log.app.tail()]
        os.kill(pod.status({}).pid, signal.SIGKILL)
        await watcher.until(lambda: "killed by signal 9" in pod.message)
        assert all(has_ended(pid) for pid in children)


async def test_an_end_that_comes_while_an_apps_last_words_are_heard_is_heeded(bridge, tmp_path, monkeypatch):
    heard = asyncio.Event()

    async def cancelled_meanwhile(work):
        await to_its_end(work)
        if getattr(work, "func", None) is end_processes and not task.cancelling():  # the app has ended by itself
            await heard.wait()
            task.cancel()

    async with running(web(tmp_path, command=("true",), ports=()), bridge, tmp_path) as (pod, _, task):
        pump = pod.log.app.pump

        async def hear(stream):
            await pump(stream)
            heard.set()

        monkeypatch.setattr(pod.log.app, "pump", hear)
        monkeypatch.setattr("weft.local.pod.to_its_end", cancelled_meanwhile)
        async with asyncio.timeout(10):
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
