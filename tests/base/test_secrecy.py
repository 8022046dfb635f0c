import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from weft.base.secrecy import memory_file
from weft.netns import namespace
from weft.netns.process import Spawn, end, spawn

PROGRAM = """
import os, resource, sys
from weft.base.secrecy import is_memory_private, keep_memory_private
resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
if sys.argv[1] == "private":
    keep_memory_private()
print(is_memory_private(), flush=True)
os.abort()
"""


def dies(how: str) -> tuple[str, bool]:
    """Return what the process printed, and whether the kernel reports a core dump."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, how],
        stdout=subprocess.PIPE,
        cwd="/tmp",
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    said = process.stdout.read()
    _, status = os.waitpid(process.pid, 0)
    process.returncode = 0
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGABRT
    pattern = Path("/proc/sys/kernel/core_pattern").read_text().strip()
    if not pattern.startswith("|"):
        for left in Path("/tmp").glob(f"core*{process.pid}*"):
            left.unlink()
    return said.strip(), os.WCOREDUMP(status)


def test_a_process_that_keeps_its_memory_private_leaves_no_core_dump():
    assert dies("private") == ("True", False)
    assert dies("not")[0] == "False"


@pytest.mark.root
@pytest.mark.parametrize(("core_dumps", "expected"), [(False, "Max core file size 1 1 bytes"), (True, None)])
async def test_a_process_can_be_started_that_never_dumps_core(core_dumps, expected):
    where = namespace.make(f"weft-core-{os.getpid()}-{core_dumps}")
    try:
        process = await spawn(Spawn(argv=("sleep", "100"), namespace=where, uid=1337, gid=1337, core_dumps=core_dumps))
        lines = Path(f"/proc/{process.pid}/limits").read_text().splitlines()
        limit = " ".join(next(line for line in lines if line.startswith("Max core")).split())
        assert (limit == expected) if expected else limit != "Max core file size 1 1 bytes"
        await end(process)
    finally:
        namespace.delete(where)


def test_a_file_in_memory_is_read_by_this_process_and_gone_with_the_block():
    before = set(Path("/proc/self/fd").iterdir())
    with memory_file(b"a key") as path:
        assert Path(path).read_bytes() == b"a key"
        assert Path(path).read_bytes() == b"a key"  # as often as needed
        assert str(Path(path).readlink()).startswith("/memfd:")
    assert set(Path("/proc/self/fd").iterdir()) == before
