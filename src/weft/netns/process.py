"""Starting and ending processes inside a namespace, each under its own user and with its own view of the files.

A process is started by util-linux's tools, which replace one another until the program itself has the process's number;
our own process, full of threads, never runs code between fork and exec. Whatever is wrong before the program runs comes
back as an error that names it. When the starting thread's process dies, even by kill -9, so does what it started.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shlex
import shutil
import signal
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Mapping
from pathlib import Path

import msgspec

from weft.netns.namespace import NetworkError, NetworkNamespace
from weft.netns.view import SYSTEM_PATH, View, closed_ancestors, is_below, may, mount_lines

# Shells put these into the environment by themselves; a process gets the variables it was given and no other.
_SHELL_VARIABLES = ("PWD", "OLDPWD", "SHLVL")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_CARRIER = "__WEFT_{}"
_LAST_WORDS = 0.5  # seconds


class Spawn(msgspec.Struct, frozen=True, kw_only=True):
    """All there is to know to start one process. `stdout` and `stderr` are what subprocess takes: a file's number,
    DEVNULL, PIPE, or STDOUT for stderr."""

    argv: tuple[str, ...]
    namespace: NetworkNamespace | None  # None: the machine's own network
    uid: int
    gid: int
    environment: Mapping[str, str] = {}
    working_directory: str = "/"
    hostname: str = ""  # its own; empty: the machine's
    view: View = View()
    capabilities: tuple[str, ...] = ()  # that it keeps of root's, by setpriv's names
    core_dumps: bool = True  # False: what is in its memory never reaches a file, not even when it crashes
    stdout: int = DEVNULL
    stderr: int = DEVNULL


async def spawn(wanted: Spawn) -> Process:
    """Start it, and return once its files are in place and the program is about to run.

    Call it on a thread that lives as long as the process should (the event loop's): the kernel ends the process when
    that thread ends.
    """
    check(wanted)
    command = _command(wanted, reports=True, dies_with_parent=True)
    # asyncio's own pipes would keep `wait` waiting until every child that has inherited them has ended, too.
    output, stdout = await _open_pipe() if wanted.stdout == PIPE else (None, wanted.stdout)
    reading, writing = os.pipe()
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            env=carried_environment(wanted),
            stdin=writing,
            stdout=stdout,
            stderr=wanted.stderr,
            start_new_session=True,
            cwd="/",
        )
    except BaseException:
        os.close(reading)
        raise
    finally:
        os.close(writing)
        if output is not None:
            os.close(stdout)
    process.stdout = output
    said = await _read_all(reading)
    if not said.endswith("ready"):  # a tool may have warned before
        status = await process.wait()
        what = f"could not start {wanted.argv[0]}: {said or f'exit status {status} while entering'}"
        named = wanted.namespace.name if wanted.namespace is not None else ""
        hint = "" if said or not named else f"see that it is there: ip netns exec {named} true"
        raise NetworkError(what, hint, where=_where(wanted))
    return process


async def end(process: Process, grace: float = 5.0) -> int:
    """End the process and everything in its group: politely, then after `grace` seconds for good. Its exit status."""
    _signal_group(process, signal.SIGTERM)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(grace):
            await process.wait()
    # Children may have outlived the leader, and have had their chance.
    _signal_group(process, signal.SIGKILL)
    return await process.wait()


async def last_words(reading: asyncio.Future[None]) -> None:
    """Of a process that has ended: they come through its pipe, unless a child of it keeps the pipe open."""
    with contextlib.suppress(TimeoutError):
        # Not `wait_for`: in Python 3.11 a caller that is cancelled just as the last word comes is not told.
        async with asyncio.timeout(_LAST_WORDS):
            await reading


def exec_argv(wanted: Spawn) -> list[str]:
    """The command to become (os.execve, with `carried_environment`) for the same view on a person's own terminal."""
    check(wanted)
    return _command(wanted, reports=False, dies_with_parent=False)


def carried_environment(wanted: Spawn) -> dict[str, str]:
    """The program's variables under names that mean nothing to the tools that start it: these are root, and a variable
    such as LD_PRELOAD must not be obeyed before the user has changed."""
    return {_CARRIER.format(number): value for number, (_, value) in enumerate(_variables(wanted))}


def check(wanted: Spawn) -> None:
    """Raise what would keep the program from running, by its name, before anything is started."""
    where = _where(wanted)
    if not wanted.argv or not wanted.argv[0]:
        raise NetworkError("the command is empty", "give the program to run", where=where)
    directory = Path(wanted.working_directory)
    if not directory.is_dir():
        what = "is not a directory" if directory.exists() else "does not exist"
        hint = f"mkdir -p {shlex.quote(wanted.working_directory)}"
        raise NetworkError(f"working directory {directory} {what}", hint, where=where)
    _check_reachable(wanted, directory, "working directory")
    program = _find(wanted)
    if not program.is_file():
        raise NetworkError(f"program {program} is not a file", where=where)
    _check_reachable(wanted, program, "program")
    if not (os.access(program, os.X_OK) and may(wanted.uid, wanted.gid, program, 1)):
        what = f"program {program} is not executable for UID {wanted.uid}"
        raise NetworkError(what, f"chmod a+rx {shlex.quote(str(program))}", where=where)
    interpreter = _interpreter(program)
    if interpreter and not Path(interpreter).exists():
        what = f"program {program} names the interpreter {interpreter}, which does not exist"
        raise NetworkError(what, f"correct the first line of {program}", where=where)


def _command(wanted: Spawn, *, reports: bool, dies_with_parent: bool) -> list[str]:
    """With `reports`, standard input is a pipe to us: what goes wrong is written there, and `ready` if nothing does."""
    setup = [*mount_lines(wanted.view, wanted.uid, wanted.gid), f"cd {shlex.quote(wanted.working_directory)}"]
    if wanted.hostname:
        # The kernel takes 64 bytes, as kubelet knows.
        setup.append(f"printf %s {shlex.quote(wanted.hostname[:63])} >/proc/sys/kernel/hostname")
    kept = ["-all", *(f"+{each}" for each in wanted.capabilities)]
    privileges = [
        _tool("setpriv"),
        *(f"--reuid={wanted.uid}", f"--regid={wanted.gid}", "--clear-groups"),
        *(f"--inh-caps={','.join(kept)}", f"--bounding-set={','.join(kept)}", "--no-new-privs"),
        *([f"--ambient-caps={','.join(kept)}"] if wanted.capabilities else []),
        # setpriv sets it after it has changed users, which would clear it.
        *(["--pdeathsig=KILL"] if dies_with_parent else []),
        "--",
    ]
    lines = [
        *(["exec 3>&2 2>&0"] if reports else []),
        # The tools are looked up in the machine's own directories, whatever PATH the program is given.
        f"PATH={SYSTEM_PATH}",
        *(line if line.endswith("|| :") else f"{line} || exit 126" for line in setup),
        *(["printf ready >&2", "exec 2>&3 3>&- </dev/null"] if reports else []),
        f'exec {shlex.join([*privileges, "/bin/sh", "-c", _unpack(wanted), "weft"])} "$@"',
    ]
    # One byte, not none: with a limit of none the kernel still hands the dump to a program, if core_pattern names one.
    limits = [] if wanted.core_dumps else [_tool("prlimit"), "--core=1:1", "--"]
    return [
        *limits,
        *([] if wanted.namespace is None else [_tool("nsenter"), f"--net={wanted.namespace.path}"]),
        *(_tool("unshare"), "--mount", "--propagation", "private", *(["--uts"] if wanted.hostname else [])),
        *("/bin/sh", "-c", "\n".join(lines), "weft", str(_find(wanted)), *wanted.argv[1:]),
    ]


def _unpack(wanted: Spawn) -> str:
    """Shell lines, run as the program's own user, that give the variables their names and become the program."""
    names = [name for name, _ in _variables(wanted)]
    carriers = [_CARRIER.format(number) for number in range(len(names))]
    unset = [*carriers, *(name for name in _SHELL_VARIABLES if name not in names)]
    given = [f'export {name}="${carrier}"' for name, carrier in zip(names, carriers, strict=True)]
    return "\n".join([*given, f"unset {' '.join(unset)}", 'exec "$@"'])


def _where(wanted: Spawn) -> str:
    return str(wanted.namespace or "this machine")


def _variables(wanted: Spawn) -> list[tuple[str, str]]:
    # Other names a shell neither takes nor passes on.
    return [item for item in wanted.environment.items() if _VARIABLE.fullmatch(item[0])]


def _find(wanted: Spawn) -> Path:
    """The program's full path, looked up as the program's own environment says."""
    name = wanted.argv[0]
    if "/" in name:
        path = Path(wanted.working_directory, name)
        if not path.exists():
            raise NetworkError(f"program {path} does not exist", "correct the command", where=_where(wanted))
        return path
    search = wanted.environment.get("PATH", SYSTEM_PATH)
    found = shutil.which(name, path=search)
    if found is None:
        what = f"program `{name}` is not in {search}"
        raise NetworkError(what, "give its full path, or set PATH in the environment", where=_where(wanted))
    return Path(wanted.working_directory, found)


def _check_reachable(wanted: Spawn, path: Path, role: str) -> None:
    real = path.resolve()
    if any(is_below(real, Path(visible).resolve()) for visible in wanted.view.visible):
        return
    closed = closed_ancestors(wanted.uid, wanted.gid, real)
    if real.is_dir() and not may(wanted.uid, wanted.gid, real, 1):
        closed.append(real)
    if closed:
        what = f"{role} {path} cannot be reached by UID {wanted.uid}: {closed[0]} is closed to it"
        raise NetworkError(what, f"chmod o+x {shlex.quote(str(closed[0]))}, or move it", where=_where(wanted))


def _interpreter(program: Path) -> str:
    """The program a script names in its first line, if it is a script."""
    with contextlib.suppress(OSError), program.open("rb") as file:
        first = file.readline(256)
        if first.startswith(b"#!"):
            words = first[2:].split(maxsplit=1)
            return os.fsdecode(words[0]) if words else ""
    return ""


def _tool(name: str) -> str:
    found = shutil.which(name, path=SYSTEM_PATH)
    if found is None:
        raise NetworkError(f"the program `{name}` is missing", "apt-get install util-linux")
    return found


def _signal_group(process: Process, number: signal.Signals) -> None:
    # It leads its own group, which may be empty by now.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


async def _open_pipe() -> tuple[asyncio.StreamReader, int]:
    """What to read, and where to write."""
    reading, writing = os.pipe()
    reader, _ = await _reader(reading)
    return reader, writing


async def _reader(descriptor: int) -> tuple[asyncio.StreamReader, asyncio.ReadTransport]:
    reader = asyncio.StreamReader()
    file = os.fdopen(descriptor, "rb", buffering=0)
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), file)
    return reader, transport


async def _read_all(descriptor: int) -> str:
    reader, transport = await _reader(descriptor)
    try:
        return " ".join((await reader.read()).decode(errors="replace").split())
    finally:
        transport.close()
