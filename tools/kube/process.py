"""Starts and ends the programs of a cluster. Each program has a log and is identified by its process id and start
time.

A cluster outlives the command that started it, so a later process finds a program by its record on disk. The record
contains the start time, because the kernel reuses process ids.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

T = TypeVar("T")


class Failed(Exception):
    """A program of the cluster ended, or was not ready in time; the message contains the end of its log."""


class Record(msgspec.Struct, frozen=True):
    """A process, identified by its id and start time."""

    pid: int
    began: int
    """Start time in clock ticks since boot."""


class Program:
    """One program: its command, its log in `directory`, and the record of its process in `records`, or else in
    `directory`."""

    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        directory: Path,
        *,
        joined: bool = False,
        records: Path | None = None,
    ) -> None:
        self.name = name
        self.log = directory / f"{name}.log"
        self._command = [str(word) for word in command]
        self._record = (records or directory) / f"{name}.process"
        self._joined = joined
        """Whether the command is `nsenter`, which waits while its only child is the program itself."""
        self._child: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self._child = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd="/"
            )
        pid = self._child.pid
        if self._joined:
            outer = pid
            pid = wait_for(lambda: only_child(outer), f"{self.name} to start", self._check_child, timeout=60)
        self._record.write_bytes(msgspec.json.encode(record(pid)))

    def pid(self) -> int:
        """The process id, or 0 if the program does not run."""
        if not self._record.exists():
            return 0
        saved = msgspec.json.decode(self._record.read_bytes(), type=Record)
        return saved.pid if runs(saved) else 0

    def check(self) -> None:
        """Raise `Failed` if the program does not run."""
        self._check_child()
        if not self.pid():
            raise Failed(f"{self.name} is not running; the end of {self.log}:\n{self.tail()}")

    def tail(self, lines: int = 20) -> str:
        if not self.log.exists():
            return ""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def stop(self, *, kill: bool = False, patience: float = 20) -> None:
        """End the program and wait for its end: with SIGTERM, then SIGKILL after `patience` seconds; with `kill`,
        SIGKILL at once."""
        pid = self.pid()
        if pid:
            end(pid, kill=kill, patience=patience)
        if self._child:
            self._child.wait()
        self._child = None
        self._record.unlink(missing_ok=True)

    def _check_child(self) -> None:
        if self._child and self._child.poll() is not None:
            raise Failed(f"{self.name} exited with {self._child.returncode}; the end of {self.log}:\n{self.tail()}")


def record(pid: int) -> Record:
    return Record(pid=pid, began=_began(pid))


def runs(process: Record) -> bool:
    return process.began != 0 and _began(process.pid) == process.began


def only_child(pid: int) -> int:
    """Return the process id of the first child of a process, or 0 if it has no child (yet)."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return int(children[0]) if children else 0


def end(pid: int, *, kill: bool = False, patience: float = 20) -> None:
    """End a process with SIGTERM, then SIGKILL after `patience` seconds; with `kill`, SIGKILL at once. Wait until it
    has ended."""
    began = _began(pid)
    steps = [(signal.SIGKILL, 60.0)] if kill else [(signal.SIGTERM, patience), (signal.SIGKILL, 60.0)]
    for number, seconds in steps:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if _began(pid) != began or _began(pid) == 0:
                return
            time.sleep(0.02)
    raise Failed(f"process {pid} does not end; see /proc/{pid}/stack")


def wait_for(look: Callable[[], T], what: str, check: Callable[[], None] | None = None, *, timeout: float) -> T:
    """Call `look` until it returns a true value and return that value. `check` is called between attempts and can
    raise an error to end the wait."""
    deadline = time.monotonic() + timeout
    while True:
        value = look()
        if value:
            return value
        if check:
            check()
        if time.monotonic() > deadline:
            raise Failed(f"waited {timeout:.0f} s for {what}")
        time.sleep(0.05)


def _began(pid: int) -> int:
    """Return the start time of a process in ticks since boot; 0 if there is no such process or it is a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return 0 if fields[0] in ("Z", "X") else int(fields[19])
