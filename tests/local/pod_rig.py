"""A real pod without a proxy, for tests of its life and of its readiness."""

from __future__ import annotations

import asyncio
import sys
from contextlib import asynccontextmanager
from pathlib import Path

from weft.local.addresses import Addresses
from weft.local.pod import LocalPod, PodEnvironment, PodPlan
from weft.local.status import PodPhase
from weft.model.workload import Workload, WorkloadPort
from weft.netns import links, namespace

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


class Watcher:
    """Records the callbacks of a pod, and waits for a state that a test expects."""

    def __init__(self) -> None:
        self.changed = asyncio.Condition()
        self.phases: list[PodPhase] = []
        self.tasks: set[asyncio.Task[None]] = set()

    def __call__(self, pod: LocalPod) -> None:
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
    """An identity source that issues nothing: a pod without a proxy needs no identity."""

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

    directory.chmod(0o777)  # a directory closed to the app's user would be copied into its view once and not be updated
    home = directory / name
    home.mkdir()
    place = PodEnvironment(
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
    pod = LocalPod(plan, place, no_proxy, watcher)
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
        "mounts": (str(directory),),
    }
    return Workload(**{**values, **fields})
