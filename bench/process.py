"""Starts the child processes of the rigs, in a network namespace and on a core, measures their CPU time and memory,
and ends them."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from weft.netns.namespace import NetworkNamespace

_ROOT = Path(__file__).parents[1]
_LOAD = str(Path(__file__).with_name("load.py"))
_GRACE_SECONDS = 5.0


class Failed(Exception):
    """A rig cannot measure; the message states why."""


class Running:
    """One child process, in a network namespace if one is given. It is ended at the end of the `with` block."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        namespace: NetworkNamespace | None = None,
        core: int | None = None,
        gid: int | None = None,
        log: Path | None = None,
    ) -> None:
        # The kernel kills the child when this process dies, even by kill -9.
        guard = ["setpriv", "--pdeathsig=KILL", *([] if gid is None else [f"--regid={gid}", "--clear-groups"]), "--"]
        pin = [] if core is None else ["taskset", "--cpu-list", str(core)]
        enter = [] if namespace is None else ["nsenter", f"--net={namespace.path}"]
        stderr = log.open("wb") if log else None
        try:
            self.process = subprocess.Popen(
                [*enter, *pin, *guard, *argv],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr or subprocess.DEVNULL,
                # weft starts its processes in new sessions, too. The kernel's autogroup scheduling divides a core
                # between sessions.
                start_new_session=True,
                cwd=_ROOT,
            )
        finally:
            if stderr is not None:
                stderr.close()

    @property
    def pid(self) -> int:
        return self.process.pid

    def __enter__(self) -> Running:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise Failed(f"{self.process.args!r} exited with status {self.process.wait()}")
        return line.decode().strip()

    def ask(self, order: dict[str, Any]) -> dict[str, Any]:
        """Send a command to the process as one JSON line and return the JSON line that it replies with."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(order).encode() + b"\n")
        self.process.stdin.flush()
        answer: dict[str, Any] = json.loads(self.line())
        if "error" in answer:
            raise Failed(f"{order}: {answer['error']}")
        return answer

    def end(self) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        if self.process.poll() is None:
            self.process.terminate()
        try:
            self.process.wait(_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


def start_server(namespace: NetworkNamespace, core: int | None, ports: Iterable[int]) -> Running:
    running = Running([sys.executable, _LOAD, "server", *(str(port) for port in ports)], namespace=namespace, core=core)
    running.line()
    return running


def start_client(namespace: NetworkNamespace, core: int) -> Running:
    return Running([sys.executable, _LOAD, "client"], namespace=namespace, core=core)


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of all threads of a process in seconds, with nanosecond precision. /proc/PID/stat has only
    hundredths of a second."""
    return scheduled(pid)[0]


def scheduled(pid: int) -> tuple[float, float]:
    """Return for how many seconds the threads of a process have run, and for how many they were ready to run but
    waited for a core."""
    ran = waited = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            words = (task / "schedstat").read_text().split()
            ran, waited = ran + int(words[0]), waited + int(words[1])
    return ran / 1e9, waited / 1e9


def memory(pid: int) -> tuple[int, int]:
    """Return the private (dirty) and the proportional memory of a process in bytes. Private clean pages are not
    counted: they are pages of the program file, which all Envoys of a node share, so the figure would depend on
    how many other Envoys run."""
    private = proportional = 0
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        name, _, rest = line.partition(":")
        if name == "Private_Dirty":
            private = int(rest.split()[0]) * 1024
        elif name == "Pss":
            proportional = int(rest.split()[0]) * 1024
    return private, proportional


def resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
