"""A real mesh in a temporary directory, for tests of the engine and of its clients."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable
from contextlib import asynccontextmanager
from pathlib import Path

from eventually import eventually
from weft.local import run_directory
from weft.local.engine import Engine
from weft.local.identities import Trust
from weft.local.pod import LocalPod
from weft.local.status import MeshStatus, PodStatus
from weft.model.names import ObjectKey
from weft.netns import namespace
from weft.netns.process import carried_environment, exec_argv

SERVER = """
import http.server, os, signal, socket, socketserver, sys, time
class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True
    request_queue_size = 128
    address_family = socket.AF_INET6
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        time.sleep(float(self.headers.get("x-wait", "0")))
        caller = self.client_address[0].removeprefix("::ffff:")
        body = f"{os.environ.get('VERSION', 'v1')} {caller} {os.environ['POD_NAME']}".encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *arguments):
        pass
print("listening", flush=True)
Server(("::", 8080), Handler).serve_forever()
"""

SERVICE = """
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec:
  selector: {app: web}
  ports: [{name: http, port: 80, targetPort: 8080}]
"""


def web(version: str = "v1", replicas: int = 1, extra: str = "") -> str:
    return f"""
apiVersion: weft.dev/v1alpha1
kind: Workload
metadata: {{name: web, namespace: shop, labels: {{app: web}}}}
spec:
  command: [python3, server.py]
  env: {{VERSION: {version}}}
  ports: [{{name: http, port: 8080}}]
  replicas: {replicas}
  {extra}
"""


CALLER = """
apiVersion: weft.dev/v1alpha1
kind: Workload
metadata: {name: caller, namespace: shop, labels: {app: caller}}
spec:
  command: [sleep, "1000"]
"""


def settings(text: str) -> str:
    return f"""
apiVersion: v1
kind: ConfigMap
metadata: {{name: istio, namespace: istio-system}}
data:
  mesh: |
    {text}
"""


def unique() -> str:
    return f"t{os.urandom(4).hex()}"


class Rig:
    def __init__(self, engine: Engine, directory: Path) -> None:
        self.engine, self.directory = engine, directory

    def write(self, name: str, text: str) -> None:
        """Save a file as an editor does: a new file replaces the old one."""
        temporary = self.directory / f".{name}.tmp"
        temporary.write_text(text)
        temporary.replace(self.directory / name)

    async def until(self, condition: Callable[[MeshStatus], object], timeout: float = 30) -> MeshStatus:
        """Poll the mesh's status until `condition` holds. Polling, because many components change the status."""
        return await eventually(self.engine.status, condition, limit=timeout)

    async def until_ready(self, *names: str) -> MeshStatus:
        """Wait until exactly these pods exist and are ready, and every proxy has acknowledged it."""
        await self.until(lambda status: {p.name: p.phase for p in pods(status)} == dict.fromkeys(names, "Ready"))
        await self.engine.settled()
        return self.engine.status()

    def pod(self, name: str) -> LocalPod:
        return self.engine.find_pod(name)

    def address(self, service: str = "web", version: int = 4) -> str:
        (value,) = self.engine.control.mesh.get(ObjectKey("Service", "shop", service))
        return next(each for each in value.addresses if (":" in each) == (version == 6))

    async def fetch(
        self, caller: str, address: str, port: int = 80, path: str = "/", **headers: str
    ) -> tuple[int, str]:
        """Send one request on a new connection from inside a pod, as any process in the pod would."""
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        connection = namespace.socket_in(self.pod(caller).namespace, family)
        async with asyncio.timeout(30):
            await asyncio.get_running_loop().sock_connect(connection, (address, port))
            reader, writer = await asyncio.open_connection(sock=connection)
            lines = [f"GET {path} HTTP/1.1", "host: web", *(f"{n.replace('_', '-')}: {v}" for n, v in headers.items())]
            writer.write("\r\n".join([*lines, "connection: close", "", ""]).encode())
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            length = int(head.partition("content-length:")[2].split()[0])
            body = (await reader.readexactly(length)).decode()
            writer.close()
        return int(head.split()[1]), body

    async def run_in(self, pod: str, *command: str) -> str:
        wanted = self.pod(pod).command(command)
        process = await asyncio.create_subprocess_exec(
            *exec_argv(wanted), env=carried_environment(wanted), stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        output, _ = await process.communicate()
        return output.decode().strip()


def pods(status: MeshStatus) -> list[PodStatus]:
    return [pod for workload in status.workloads for pod in workload.pods]


def traces(name: str) -> list[str]:
    """Return what a mesh with this name has left on the machine."""
    prefix = run_directory.namespace_prefix(name)
    found = [str(each) for each in namespace.namespaces() if each.name.startswith(prefix)]
    found += [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines() if name in line]
    directory = run_directory.base_directory() / name
    return found + ([str(directory)] if directory.exists() else [])


@asynccontextmanager
async def mesh(
    *files: str, name: str = "", inside: Path = Path("/tmp"), trust: Trust | None = None, domain: str = "cluster.local"
):
    """Run a mesh of these files. At the end of the block, nothing of the mesh may be left on the machine."""
    directory = Path(tempfile.mkdtemp(prefix="weft-mesh-", dir=inside))
    directory.chmod(0o755)
    (directory / "server.py").write_text(SERVER)
    for number, text in enumerate(files):
        (directory / f"{number}.yaml").write_text(text)
    engine = Engine(directory, name=name or unique(), trust=trust or Trust(), domain=domain)
    try:
        await engine.start()
        yield Rig(engine, directory)
    finally:
        async with asyncio.timeout(40):
            await engine.stop()
        shutil.rmtree(directory)
    assert traces(engine.name) == []
