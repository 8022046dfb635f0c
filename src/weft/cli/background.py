"""A mesh in the background: `weft up` started as a process of its own, watched until its pods are ready, and left.
What it prints goes to a file beside its run directory, which `weft down` removes."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from pathlib import Path
from typing import BinaryIO

from weft.cli.output import fail, say
from weft.cli.plain import changes
from weft.cli.view import is_settled
from weft.local.client import fetch_status
from weft.local.error import LocalError
from weft.local.run_directory import base_directory, find
from weft.local.status import MeshStatus, Phase, PodStatus


def log_file(name: str) -> Path:
    return base_directory() / f"{name}.log"


def run_background(directory: Path, *, name: str, patience: float) -> None:
    """Return once all pods are ready, or fail after so many seconds; the mesh runs on in either case."""
    record = find(name)
    if record is not None and record.running:
        fail(f"a mesh named `{name}` is running already", f"end it with: weft down {name}\nor give another --name")
    with _open_log(name) as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "weft.cli", "up", str(directory.absolute()), "--name", name, "--no-live"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    status = _wait(process, name, patience)
    if status is not None and is_settled(status):
        say(f"mesh {name} runs (pid {process.pid}): weft status, weft logs, weft exec; weft down {name} ends it")
        return
    fail(
        f"{_unready(status)}; the mesh goes on",
        f"look with: weft ps, weft logs WORKLOAD, or: cat {log_file(name)}",
    )


def _open_log(name: str) -> BinaryIO:
    while True:
        base_directory().mkdir(mode=0o755, parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):  # the last mesh that ended has just removed the directory
            return log_file(name).open("wb")


def _wait(process: subprocess.Popen[bytes], name: str, patience: float) -> MeshStatus | None:
    """Until all pods are ready or one has failed for good, saying what happens meanwhile."""
    status: MeshStatus | None = None
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        if process.poll() is not None:
            fail(f"the mesh ended with code {process.returncode}{_last_words(name)}")
        try:
            before, status = status, fetch_status(name)
        except LocalError:
            time.sleep(0.1)
            continue
        for line in changes(before, status):
            say(line)
        if is_settled(status) or any(pod.phase is Phase.FAILED for pod in _pods(status)):
            return status
        time.sleep(0.2)
    return status


def _last_words(name: str) -> str:
    """What it printed; nothing if `weft down`, which removes the file, was quicker."""
    try:
        text = log_file(name).read_text(errors="replace").strip()
    except FileNotFoundError:
        return ""
    log_file(name).unlink(missing_ok=True)
    return f":\n{text}"


def _unready(status: MeshStatus | None) -> str:
    if status is None:
        return "it does not answer yet"
    unready = [pod for pod in _pods(status) if pod.phase not in (Phase.READY, Phase.COMPLETED)]
    return ", ".join(f"{pod.name} ({pod.phase})" for pod in unready) or "there are no pods"


def _pods(status: MeshStatus) -> list[PodStatus]:
    return [pod for workload in status.workloads for pod in workload.pods]
