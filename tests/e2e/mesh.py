"""A mesh for a test: the local engine in this process, its YAML directory, and a way to send commands to each pod.

Rule: nothing here waits for a fixed time; it waits for a condition, and reports the last state if the condition is
not met.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from e2e.objects import Document, text
from eventually import eventually
from weft.api.kinds import key_kind
from weft.control.plane import ControlPlane
from weft.local.engine import Engine
from weft.local.identities import Trust
from weft.local.status import PodPhase, PodStatus
from weft.model.names import ObjectKey

A_DAY = Trust()
_meshes = iter(range(1_000_000))


def unique_name(word: str = "e2e") -> str:
    return f"{word}-{os.getpid()}-{next(_meshes)}"


async def tell(control: Path, pod: str, command: str, **arguments: Any) -> Any:
    """Run a command in the program of a pod; returns its result, or raises its error as an AssertionError."""
    reader, writer = await _reach(control / f"{pod}.sock")
    try:
        writer.write(json.dumps({"call": command, "arguments": arguments}).encode() + b"\n")
        answer = json.loads(await asyncio.wait_for(reader.readline(), 90))
    finally:
        writer.close()
    assert "error" not in answer, f"{pod} {command} {arguments}: {answer['error']}"
    return answer["result"]


async def _reach(path: Path) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    just_started = (FileNotFoundError, ConnectionRefusedError)  # the program has just been started or restarted
    return await eventually(lambda: asyncio.open_unix_connection(path, limit=1 << 26), retry=just_started)


class Mesh:
    def __init__(self, engine: Engine, directory: Path, control: Path) -> None:
        self.engine, self.directory, self.sockets = engine, directory, control

    @property
    def control(self) -> ControlPlane:
        return self.engine.control

    # Pods

    def pods(self, workload: str) -> list[PodStatus]:
        return [pod for each in self.engine.status().workloads if each.name == workload for pod in each.pods]

    def pod(self, workload: str) -> PodStatus:
        return next(pod for pod in self.pods(workload) if pod.phase is not PodPhase.ENDING)

    async def ready(self, timeout: float = 60.0) -> None:
        """Wait until every pod is ready or completed and every proxy has its config."""
        await eventually(lambda: self._states() <= {PodPhase.READY, PodPhase.COMPLETED}, limit=timeout)
        await self.synced()

    def _states(self) -> set[PodPhase]:
        workloads = self.engine.status().workloads
        missing = {PodPhase.STARTING for each in workloads if len(each.pods) < each.replicas}
        return missing | {pod.phase for each in workloads for pod in each.pods}

    async def tell(self, workload: str, command: str, **arguments: Any) -> Any:
        return await tell(self.sockets, self.pod(workload).name, command, **arguments)

    async def get(self, workload: str, url: str, **arguments: Any) -> dict[str, Any]:
        """Send one request from a pod."""
        return (await self.tell(workload, "http", url=url, **arguments))[0]

    async def requests(self, workload: str, url: str, count: int, **arguments: Any) -> list[dict[str, Any]]:
        return await self.tell(workload, "http", url=url, count=count, **arguments)

    async def received(self, workload: str, path: str) -> int:
        """Number of requests for a path that the workload's pods have received."""
        counts = [await tell(self.sockets, pod.name, "received") for pod in self.pods(workload)]
        return sum(count.get(path, 0) for count in counts)

    async def stats(self, pod: str, pattern: str) -> dict[str, int]:
        """Counters and gauges of a pod's proxy whose names match."""
        answer = await tell(self.sockets, pod, "http", url=f"http://127.0.0.1:15000/stats?format=json&filter={pattern}")
        assert answer[0]["status"] == 200, answer
        return {each["name"]: each["value"] for each in answer[0]["body"]["stats"] if "name" in each}

    async def stat(self, workload: str, pattern: str) -> int:
        return sum((await self.stats(self.pod(workload).name, pattern)).values())

    async def weft(self, *arguments: str) -> tuple[int, str, str]:
        """Run a command on this mesh; returns exit code, stdout and stderr."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "weft.cli", *arguments, "--mesh", self.engine.name),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        said, words = await asyncio.wait_for(process.communicate(), 60)
        return process.returncode or 0, said.decode(), words.decode()

    # Config

    async def try_out(self, *documents: Document) -> None:
        """Like `edit`, with objects that are removed after the test."""
        await self.edit({"test.yaml": text(*documents)})

    async def edit(self, files: Mapping[str, str | None]) -> None:
        """Save files (None deletes) that change what proxies have; returns when every proxy has accepted the change."""
        old, new = {}, {}
        for name, content in files.items():
            path = self.directory / name
            old |= _objects(path.read_text() if path.exists() else "")
            new |= _objects(content or "")
        different = {key for key, document in new.items() if old.get(key) != document}
        gone = old.keys() - new.keys()
        seen: set[ObjectKey] = set()
        self.control.on_change.append(seen.update)
        for name, content in files.items():
            self.write(name, content)
        await eventually(lambda: different <= seen and not any(self.control.mesh.get(key) for key in gone))
        self.control.on_change.remove(seen.update)
        await self.synced()

    def write(self, name: str, content: str | None) -> None:
        path = self.directory / name
        if content is None:
            path.unlink()
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        # As editors do: the whole file appears at once.
        new = path.with_name(f".{path.name}.new")
        new.write_text(content)
        new.rename(path)

    async def synced(self, timeout: float = 20.0) -> None:
        await eventually(lambda: not self.control.pending and self._answered(), limit=timeout)

    def _answered(self) -> bool:
        return {proxy.sync.value for proxy in self.control.proxies()} <= {"SYNCED"}

    def problems(self) -> list[str]:
        return [str(problem) for problem in self.engine.problems()]


def _objects(content: str) -> dict[ObjectKey, Any]:
    documents = [document for document in yaml.safe_load_all(content) if document]
    return {
        ObjectKey(
            key_kind(each["apiVersion"], each["kind"]), each["metadata"].get("namespace", ""), each["metadata"]["name"]
        ): each
        for each in documents
    }


def proxy_process(pod: PodStatus) -> tuple[int, str]:
    """The process id of the pod's Envoy and its start time, which together identify one process."""
    return next((pid, _begun(pid)) for pid in _processes_beside(pod.pid) if _uid(pid) == 1337)


def _processes_beside(pid: int) -> list[int]:
    """Every process in the same network namespace."""
    network = Path(f"/proc/{pid}/ns/net").readlink()
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and (entry / "ns/net").readlink() == network:
                found.append(int(entry.name))
    return found


def _begun(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[19]


def _uid(pid: int) -> int:
    with contextlib.suppress(FileNotFoundError):
        return Path(f"/proc/{pid}").stat().st_uid
    return -1


def control_directory() -> Path:
    """The directory in which pods, each under its own user, create the sockets for test commands."""
    path = Path(tempfile.mkdtemp(prefix="weft-e2e-", dir="/tmp"))
    path.chmod(0o777)
    return path


@contextlib.asynccontextmanager
async def running_mesh(
    files: Callable[[Path], Mapping[str, str]], *, wait: bool = True, name: str = "", trust: Trust = A_DAY
) -> AsyncIterator[Mesh]:
    """A ready mesh of these files (created for a directory of control sockets), removed afterwards."""
    control = control_directory()
    directory = Path(tempfile.mkdtemp(prefix="weft-e2e-mesh-", dir="/tmp"))
    engine = Engine(directory, name=name or unique_name(), trust=trust)
    mesh = Mesh(engine, directory, control)
    try:
        for file, content in files(control).items():
            mesh.write(file, content)
        await engine.start()
        if wait:
            await mesh.ready()
        yield mesh
    finally:
        await engine.stop()
        shutil.rmtree(directory, ignore_errors=True)
        shutil.rmtree(control, ignore_errors=True)
