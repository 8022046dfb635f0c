"""`weft up` as a process: however it ends, it leaves nothing on the machine."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import host
from e2e.mesh import control_directory, tell, unique_name
from e2e.objects import http_service, text, virtual_service, workload
from eventually import eventually
from weft.local.client import fetch_status
from weft.local.error import LocalError
from weft.local.status import PodPhase, PodStatus

WEFT = (sys.executable, "-m", "weft.cli")


def weft(*arguments: str, **options) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*WEFT, *arguments], capture_output=True, text=True, timeout=90, **options)


class Command:
    """One `weft up`, and its traces on the machine."""

    def __init__(self, run_base: Path) -> None:
        self.name, self.run_base = unique_name("up"), run_base
        self.sockets = control_directory()
        self.directory = Path(tempfile.mkdtemp(prefix="weft-e2e-mesh-", dir="/tmp"))
        (self.directory / "mesh.yaml").write_text(
            text(
                workload("client", control=self.sockets),
                workload("app", control=self.sockets, serve="http=8080"),
                http_service("app"),
            )
        )
        self.process: asyncio.subprocess.Process | None = None
        self.output = b""

    async def start(self, *arguments: str) -> None:
        self.process = await asyncio.create_subprocess_exec(
            *(*WEFT, "up", str(self.directory), "--name", self.name, *arguments),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
        self.reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        while data := await self.process.stdout.read(65536):
            self.output += data

    def pods(self) -> dict[str, PodStatus]:
        try:
            status = fetch_status(self.name)
        except LocalError:
            return {}
        return {pod.workload: pod for each in status.workloads for pod in each.pods}

    async def ready(self) -> dict[str, PodStatus]:
        def all_ready():
            assert self.process is None or self.process.returncode is None, self.output.decode()
            pods = self.pods()
            return pods if len(pods) == 2 and {pod.phase for pod in pods.values()} == {PodPhase.READY} else None

        return await eventually(all_ready, limit=60)

    async def get(self, url: str) -> dict:
        return (await tell(self.sockets, self.pods()["client"].name, "http", url=url))[0]

    def processes(self) -> set[int]:
        """Every process in a namespace of this mesh."""
        inodes = set()
        for path in self.namespaces():
            with contextlib.suppress(OSError):
                inodes.add(path.stat().st_ino)
        found = set()
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdigit() and (entry / "ns/net").stat().st_ino in inodes:
                    found.add(int(entry.name))
        return found

    def namespaces(self) -> list[Path]:
        return [path for path in Path("/run/netns").glob("*") if self.name in path.name]

    def left(self) -> list[str]:
        """Everything of this mesh that is still on the machine."""
        found = [str(path) for path in self.namespaces()]
        found += [line for line in Path("/proc/self/mounts").read_text().splitlines() if self.name in line]
        found += [str(path) for path in self.run_base.glob(f"*{self.name}*")]
        return found + [f"process {pid}" for pid in self.processes()]


@pytest.fixture
async def command(run_base):
    command = Command(run_base)
    yield command
    process = command.process
    if process is not None and process.returncode is None:
        process.kill()
        await process.wait()
    weft("down", command.name)
    shutil.rmtree(command.directory, ignore_errors=True)
    shutil.rmtree(command.sockets, ignore_errors=True)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_mesh_ended_by_a_signal_leaves_nothing_behind(command, number):
    before = host.network()
    await command.start()
    pods = await command.ready()
    assert (await command.get("http://app/"))["status"] == 200
    pids = command.processes()
    assert {pod.pid for pod in pods.values()} < pids
    command.process.send_signal(number)
    assert await asyncio.wait_for(command.process.wait(), 30) == 0, command.output.decode()
    assert command.left() == []
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]
    assert host.network() == before


async def test_a_mesh_that_is_ended_while_it_starts_leaves_nothing(command):
    await command.start()
    await eventually(command.namespaces)
    command.process.send_signal(signal.SIGINT)
    await asyncio.wait_for(command.process.wait(), 30)
    assert command.left() == []


async def test_pods_do_not_outlive_a_mesh_that_is_killed_and_down_cleans_up_behind_it(command):
    await command.start()
    await command.ready()
    pids = command.processes()
    command.process.kill()
    await command.process.wait()
    await eventually(lambda: not [pid for pid in pids if Path(f"/proc/{pid}").exists()])
    assert command.left() != []
    done = weft("down", command.name)
    assert done.returncode == 0, done.stderr
    assert command.left() == []


async def test_up_cleans_up_behind_a_mesh_that_was_killed(command):
    await command.start()
    await command.ready()
    command.process.kill()
    await command.process.wait()
    await command.start()
    await command.ready()
    assert (await command.get("http://app/"))["status"] == 200
    command.process.terminate()
    await asyncio.wait_for(command.process.wait(), 30)
    assert command.left() == []


async def test_a_taken_name_is_a_clear_error_and_does_not_affect_the_running_mesh(command):
    await command.start()
    await command.ready()
    second = weft("up", str(command.directory), "--name", command.name)
    assert second.returncode != 0
    assert command.name in second.stderr
    assert "running" in second.stderr
    assert "Traceback" not in second.stderr
    assert (await command.get("http://app/"))["status"] == 200


async def test_a_directory_that_is_missing_is_a_clear_error_and_leaves_nothing(command):
    shutil.rmtree(command.directory)
    done = weft("up", str(command.directory), "--name", command.name)
    assert done.returncode != 0
    assert str(command.directory) in done.stderr
    assert "Traceback" not in done.stderr
    assert command.left() == []


async def test_without_root_the_error_names_the_missing_capability(command):
    # Root without capabilities; another user might not be able to read this interpreter.
    bare = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", *WEFT, "up", str(command.directory)]
    done = subprocess.run(bare, capture_output=True, text=True, timeout=60)
    assert done.returncode != 0
    assert "CAP_NET_ADMIN" in done.stderr
    assert "hint:" in done.stderr
    assert "Traceback" not in done.stderr


async def test_a_control_plane_whose_port_is_taken_reports_the_address(command):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = weft("control", "--config", str(command.directory), "--listen", address)
    assert done.returncode != 0
    assert address in done.stderr
    assert "Traceback" not in done.stderr


async def test_a_detached_mesh_keeps_running_and_serves_every_command(command):
    done = weft("up", str(command.directory), "--name", command.name, "--detach")
    assert done.returncode == 0, done.stderr
    await command.ready()
    assert (await command.get("http://app/"))["status"] == 200
    status = json.loads(weft("status", "--mesh", command.name, "-o", "json").stdout)
    assert {each["name"]: each["ready"] for each in status["workloads"]} == {"client": 1, "app": 1}
    listed = weft("ps", "--mesh", command.name)
    assert "app" in listed.stdout
    assert "Ready" in listed.stdout
    program = "import urllib.request as r; print(r.urlopen('http://app/by-exec').status)"
    executed = weft("exec", "--mesh", command.name, "client", "--", sys.executable, "-c", program)
    assert executed.stdout.strip() == "200", executed.stderr
    assert weft("exec", "--mesh", command.name, "client", "--", "sh", "-c", "exit 7").returncode == 7
    assert "serves http=8080" in weft("logs", "--mesh", command.name, "app").stdout
    ended = weft("down", command.name)
    assert ended.returncode == 0, ended.stderr
    assert command.left() == []


async def test_an_app_sees_nothing_of_a_closed_directory_but_what_its_workload_declares(command):
    here = command.directory
    (here / "mesh.yaml").write_text(
        text(
            workload("plain", control=command.sockets, command=["sleep", "infinity"], workingDirectory=None),
            workload(
                "sharing", control=command.sockets, command=["sh", "loop.sh"], workingDirectory=None, mounts=["data"]
            ),
        )
    )
    (here / "data").mkdir(mode=0o755)
    for name, content in (("gateway.key", "key"), ("loop.sh", "sleep infinity"), ("data/table", "rows")):
        (here / name).write_text(content)
        (here / name).chmod(0o644)
    (here / "data").chmod(0o755)
    assert here.stat().st_mode & 0o077 == 0
    await command.start("--detach")
    await command.process.wait()
    command.process = None
    await command.ready()

    def seen(pod: str) -> list[str]:
        found = weft("exec", "--mesh", command.name, pod, "--", "find", str(here), "-type", "f")
        return sorted(line.removeprefix(f"{here}/") for line in found.stdout.splitlines())

    assert seen("plain") == []
    assert seen("sharing") == ["data/table", "loop.sh"]
    read = weft("exec", "--mesh", command.name, "sharing", "--", "cat", "data/table", str(here / "gateway.key"))
    assert read.stdout == "rows"
    assert "No such file or directory" in read.stderr
    assert weft("down", command.name).returncode == 0


@pytest.fixture
def small_disk():
    path = Path(tempfile.mkdtemp(prefix="weft-e2e-disk-", dir="/tmp"))
    path.chmod(0o755)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m,mode=755", "weft-e2e", str(path)], check=True)
    yield path
    subprocess.run(["umount", "-l", str(path)], check=True)
    path.rmdir()


async def test_a_full_disk_for_logs_does_not_stop_the_mesh(run_base, small_disk, monkeypatch):
    monkeypatch.setenv("WEFT_RUN_DIR", str(small_disk))
    command = Command(small_disk)
    try:
        await command.start()
        await command.ready()
        client = command.pods()["client"].name
        with contextlib.suppress(OSError), (small_disk / "filler").open("wb") as filler:
            while True:
                filler.write(b"x" * 4096)
                filler.flush()
        (command.directory / "noise.yaml").write_text(
            text(virtual_service("app", {"headers": {"response": {"set": {"x-full": "yes"}}}, "route": [
                {"destination": {"host": "app"}}]})))  # fmt: skip
        await tell(command.sockets, client, "speak", lines=50_000)

        async def follows():
            answer = await command.get("http://app/")
            return answer["status"] == 200 and answer["headers"].get("x-full") == "yes"

        await eventually(follows)
        command.process.terminate()
        assert await asyncio.wait_for(command.process.wait(), 30) == 0, command.output.decode()
        (small_disk / "filler").unlink()
        assert command.left() == []
    finally:
        if command.process is not None and command.process.returncode is None:
            command.process.kill()
            await command.process.wait()
        weft("down", command.name)
        shutil.rmtree(command.directory, ignore_errors=True)
        shutil.rmtree(command.sockets, ignore_errors=True)
