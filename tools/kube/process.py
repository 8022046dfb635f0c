"""Starts and ends the programs of a cluster, each with its log, each known by its process id and when it began.

A cluster outlives the command that started it, so a program is also found again from its record. The record holds the
time its process began, because the kernel gives process ids out again.
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
    """A program of the cluster ended, or was not ready in time; the message carries the end of its log."""


class Record(msgspec.Struct, frozen=True):
    """A process as the kernel knows it."""

    pid: int
    began: int
    """In the kernel's ticks since the machine started."""


class Program:
    """One program, its command, its log in `directory`, and the record of its process there or in `records`."""

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
        """The process id, or 0 if it does not run."""
        if not self._record.exists():
            return 0
        known = msgspec.json.decode(self._record.read_bytes(), type=Record)
        return known.pid if runs(known) else 0

    def check(self) -> None:
        """Raises if the program does not run."""
        self._check_child()
        if not self.pid():
            raise Failed(f"{self.name} does not run; the end of {self.log}:\n{self.tail()}")

    def tail(self, lines: int = 20) -> str:
        if not self.log.exists():
            return ""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def stop(self, *, kill: bool = False, patience: float = 20) -> None:
        """Ends it and waits for that: politely first, unless `kill`."""
        pid = self.pid()
        if pid:
            end(pid, kill=kill, patience=patience)
        if self._child:
            self._child.wait()
        self._child = None
        self._record.unlink(missing_ok=True)

    def _check_child(self) -> None:
        if self._child and self._child.poll() is not None:
            raise Failed(f"{self.name} ended with {self._child.returncode}; the end of {self.log}:\n{self.tail()}")


def record(pid: int) -> Record:
    return Record(pid=pid, began=_began(pid))


def runs(known: Record) -> bool:
    return known.began != 0 and _began(known.pid) == known.began


def only_child(pid: int) -> int:
    """The process id of the child of a process, 0 if it has none (yet)."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return int(children[0]) if children else 0


def end(pid: int, *, kill: bool = False, patience: float = 20) -> None:
    """Ends a process and waits until the kernel says so."""
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
    """What `look` finds, as soon as it finds something. `check` raises when waiting is in vain."""
    deadline = time.monotonic() + timeout
    while True:
        found = look()
        if found:
            return found
        if check:
            check()
        if time.monotonic() > deadline:
            raise Failed(f"waited {timeout:.0f} s for {what}")
        time.sleep(0.05)


def _began(pid: int) -> int:
    """When a process began; 0 if there is none or only its remains."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return 0 if fields[0] in ("Z", "X") else int(fields[19])
