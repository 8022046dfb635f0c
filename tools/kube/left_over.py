"""API servers of their own that tests start, and what a killed run left of them: ended at the next start.

Who starts one gets a folder for the records of its programs, beside a record of itself, in a place that all runs know;
a test's own directory may be gone before its processes are. The rule: only what such a record names is ended, known by
its process id and when it began.
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
    """The folder for what the block starts. What others have left behind is ended first."""
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
