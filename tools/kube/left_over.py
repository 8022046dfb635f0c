"""Ends the API servers that a killed test run left behind, when the next API server is started.

A process that starts an API server gets a directory, in a fixed place, for the records of its programs and of
itself. A test's temporary directory could not be used, because it may be deleted before the processes end. The rule:
only processes with such a record are ended, identified by process id and start time.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from tools.kube.process import Record, end, record, runs

from tools.kube import build

_OWNER = "owner"


def place() -> Path:
    return build.cache().parent / "alone"


@contextmanager
def recorded() -> Iterator[Path]:
    """Yield a directory for the records of the programs that the block starts. First end the programs of processes
    that no longer run."""
    with _lock():
        _clean()
        folder = Path(tempfile.mkdtemp(dir=place()))
        (folder / _OWNER).write_bytes(msgspec.json.encode(record(os.getpid())))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _clean() -> None:
    for folder in place().iterdir():
        if not folder.is_dir() or _runs(folder / _OWNER):
            continue
        for file in folder.glob("*.process"):
            if _runs(file):
                end(_record(file).pid, kill=True)
        shutil.rmtree(folder, ignore_errors=True)


def _runs(file: Path) -> bool:
    try:
        return runs(_record(file))
    except (FileNotFoundError, msgspec.DecodeError):
        return False


def _record(file: Path) -> Record:
    return msgspec.json.decode(file.read_bytes(), type=Record)


@contextmanager
def _lock() -> Iterator[None]:
    place().mkdir(parents=True, exist_ok=True)
    with (place() / "lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
