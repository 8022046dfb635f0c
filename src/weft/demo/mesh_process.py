"""A mesh under test: runs `weft up` as a child process, and sends requests and reads logs through the `weft` command
line. `stop` returns what the mesh left behind, which should be nothing."""

from __future__ import annotations

import contextlib
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec

from weft.base.key_search import Searched, files_below, search, started_with
from weft.base.own_command import WEFT
from weft.local.client import fetch_status
from weft.local.error import LocalError
from weft.local.run_directory import base_directory
from weft.local.status import MeshStatus
from weft.netns.namespace import namespaces, processes_in


class StepFailed(Exception):
    """A step of the check failed. The message states what was observed instead of the expected result."""


class ShopAnswer(msgspec.Struct, frozen=True):
    status: int  # HTTP status; 0 without a response
    body: dict[str, Any]
    at: float  # Unix time


class MeshProcess:
    def __init__(self, directory: Path, *, name: str, log: Path, until: float, options: tuple[str, ...] = ()) -> None:
        self.directory = directory
        self.name = name
        self.log = log
        self.most_processes = 0
        self._until = until
        self._options = options  # further options of `weft up`
        self._mesh: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("wb") as log:
            self._mesh = subprocess.Popen(
                [*WEFT, "up", str(self.directory), "--name", self.name, "--no-live", *self._options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C reaches only this process, which then stops the mesh
            )

    def status(self) -> MeshStatus:
        status = self._status()
        if status is None:
            raise StepFailed(f"weft up ended with {self._code()}" if self._code() is not None else "no status yet")
        return status

    def wait_for(self, what: str, lacking: Callable[[MeshStatus], str], *, seconds: float) -> MeshStatus:
        """Poll the mesh until `lacking(status)` returns an empty string, and return that status. After `seconds`, raise
        StepFailed with what is still lacking. `what` names the awaited state."""
        deadline = min(time.monotonic() + seconds, self._until)
        missing = "no status"
        while time.monotonic() < deadline:
            if self._code() is not None:
                raise StepFailed(f"weft up ended with {self._code()} before {what}")
            status = self._status()
            if status is not None:
                missing = lacking(status)
                if not missing:
                    return status
            time.sleep(0.1)
        raise StepFailed(f"after {seconds:.0f} s: {missing}")

    def ask(self, url: str, count: int, *, by: str = "loadgen") -> list[ShopAnswer]:
        """Send `count` requests to `url` from a pod of the workload `by`, and return the responses."""
        command = self._exec(by, "python3", "ask.py", url, str(count))
        finished = self._run(command, seconds=40)
        answers = [_answer(line) for line in finished.splitlines()]
        if len(answers) != count:
            raise StepFailed(f"{len(answers)} answers to {count} requests; the last line: {finished[-300:]}")
        return answers

    @contextlib.contextmanager
    def stream(self, url: str, *, by: str = "loadgen") -> Iterator[Iterator[ShopAnswer]]:
        """Send requests to `url` from a pod of the workload `by` until the block ends. Yields an iterator over the
        responses as they arrive, about a hundred per second."""
        command = self._exec(by, "python3", "ask.py", url, "100000", "--parallel", "2", "--pause", "0.015")
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            yield self._answers(process)
        finally:
            process.terminate()
            try:
                process.communicate(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()

    def logs(self, workload: str, *, proxy: bool = False) -> str:
        which = ["--proxy"] if proxy else []
        return self._run([*WEFT, "logs", "--mesh", self.name, *which, workload], seconds=20)

    def search_keys(self) -> Searched:
        """Search for private keys in every file that the mesh created or was created from, and in the arguments and
        environment of each of its processes."""
        base = base_directory()
        files = files_below(base / self.name, base / f"{self.name}.log", self.directory, self.log)
        weft = [self._mesh.pid] if self._mesh else []
        return search(chain(files, started_with([*weft, *(pid for pid, _ in self._processes())])))

    def log_lines(self) -> list[str]:
        return self.log.read_text(errors="replace").splitlines() if self.log.exists() else []

    def stop(self) -> list[str]:
        """Stop the mesh with `weft down`, as a user would. Return a line for each process, namespace, mount and file
        that the mesh left behind, and one if `weft up` failed or had to be killed."""
        if self._mesh is None:
            return []
        alive = self._processes()
        self.most_processes = len(alive)
        traces: list[str] = []
        try:
            # This has a timeout of its own, independent of `until`: the mesh must be stopped even if the steps used up
            # their time.
            subprocess.run([*WEFT, "down", self.name], capture_output=True, timeout=30, check=False)
            code = self._mesh.wait(timeout=20)
            if code != 0:
                traces.append(f"weft up ended with {code}")
        except subprocess.TimeoutExpired:
            traces.append("weft up did not end")
            self._mesh.send_signal(signal.SIGKILL)
            self._mesh.wait()
            subprocess.run([*WEFT, "down", self.name], capture_output=True, timeout=30, check=False)
        traces += [f"process {pid} ({name})" for (pid, begun), name in alive.items() if _begun(pid) == begun]
        traces += [f"namespace {each.name}" for each in namespaces() if self._is_ours(each.name)]
        mounts = Path("/proc/self/mounts").read_text().splitlines()
        traces += [f"mount {line.split()[1]}" for line in mounts if self._is_ours(line.split()[1])]
        traces += [f"file {path}" for path in base_directory().glob("*") if self._is_ours(path.name)]
        self._mesh = None
        return traces

    def _status(self) -> MeshStatus | None:
        try:
            return fetch_status(self.name)
        except LocalError:
            return None

    def _code(self) -> int | None:
        return self._mesh.poll() if self._mesh else None

    def _exec(self, workload: str, *command: str) -> list[str]:
        return [*WEFT, "exec", "--mesh", self.name, workload, "--", *command]

    def _run(self, command: list[str], *, seconds: float) -> str:
        left = max(1.0, min(seconds, self._until - time.monotonic()))
        try:
            finished = subprocess.run(command, capture_output=True, text=True, timeout=left, check=False)
        except subprocess.TimeoutExpired as expired:
            raise StepFailed(f"`{' '.join(command[len(WEFT) :])}` did not end in {left:.0f} s") from expired
        if finished.returncode != 0:
            output = finished.stderr.strip() or finished.stdout[-300:]
            raise StepFailed(f"`weft {' '.join(command[len(WEFT) :])}` ended with {finished.returncode}: {output}")
        return finished.stdout

    def _answers(self, process: subprocess.Popen[bytes]) -> Iterator[ShopAnswer]:
        assert process.stdout is not None and process.stderr is not None  # noqa: S101 - both are pipes
        for line in process.stdout:
            yield _answer(line)
            if time.monotonic() > self._until:
                raise StepFailed("the time limit of the check is over")
        raise StepFailed(f"the requests ended early: {process.stderr.read().decode(errors='replace')[-300:]}")

    def _is_ours(self, place: str) -> bool:
        """Return whether `place` belongs to this mesh: a namespace (weft-NAME.…, weft-NAME@…), or a path that contains
        such a name or the run directory. Places of another mesh do not match, even if that mesh's name contains this
        mesh's name."""
        return re.search(rf"(^|/|weft-){re.escape(self.name)}([.@/]|$)", place) is not None

    def _processes(self) -> dict[tuple[int, str], str]:
        """Return the processes in the mesh's namespaces now: (PID, start time) → name."""
        pids = {pid for each in namespaces() if self._is_ours(each.name) for pid in processes_in(each)}
        return {(pid, begun): _name(pid) for pid in sorted(pids) if (begun := _begun(pid))}


def until(answers: Iterator[ShopAnswer], begun: float, *, seconds: float) -> Iterator[ShopAnswer]:
    """Yield the responses from `answers` that arrive within `seconds` after the moment `begun`."""
    for answer in answers:
        if answer.at > begun + seconds:
            return
        if answer.at > begun:
            yield answer


def odd_one(answers: list[ShopAnswer]) -> str:
    return next((f"{answer.status} {answer.body}" for answer in answers if answer.status != 200), "none")


def _answer(line: str | bytes) -> ShopAnswer:
    try:
        return msgspec.json.decode(line, type=ShopAnswer)
    except msgspec.DecodeError as error:
        raise StepFailed(f"not a response: {line[:200]!r}") from error


def _begun(pid: int) -> str:
    """Return when the process started, in the kernel's clock ticks; empty once the process has ended. Distinguishes two
    processes with the same PID, because the kernel reuses PIDs."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] == "Z" else fields[19]


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return "gone"
