"""Starts and ends processes inside a network namespace, each with its own user and its own view of the files.

util-linux's tools start a process: each one execs the next, and the program keeps the PID of the first. So weft's own
multi-threaded process never runs code between fork and exec. An error before the program runs is raised with the name
of the failed step. When weft's process dies, even by kill -9, the kernel kills the processes that it started.
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

# Shells add these to the environment; a process gets only the variables of its `Spawn`.
_SHELL_VARIABLES = ("PWD", "OLDPWD", "SHLVL")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_CARRIER = "__WEFT_{}"
_LAST_WORDS = 0.5  # seconds to read the rest of an ended process's output


class Spawn(msgspec.Struct, frozen=True, kw_only=True):
    """Everything needed to start one process. `namespace`: the network of the process; None for the machine's own.
    `hostname`: the host name that the process sees; "" for the machine's. `view`: which files the process sees.
    `capabilities`: root's capabilities that the process keeps, by setpriv's names. `core_dumps`: false if the process's
    memory must never be written to a file, not even when it crashes. `stdout` and `stderr` are as in subprocess: a file
    descriptor, DEVNULL, PIPE, or STDOUT for stderr."""

    argv: tuple[str, ...]
    namespace: NetworkNamespace | None  # None: the machine's own network
    uid: int
    gid: int
    environment: Mapping[str, str] = {}
    working_directory: str = "/"
    hostname: str = ""  # empty: the machine's
    view: View = View()
    capabilities: tuple[str, ...] = ()  # root's capabilities that it keeps, by setpriv's names
    core_dumps: bool = True  # False: its memory is never written to a file, not even when it crashes
    stdout: int = DEVNULL
    stderr: int = DEVNULL


async def spawn(wanted: Spawn) -> Process:
    """Start the process, and return it once its mounts are set up and the program is about to run.

    Call it on a thread that lives as long as the process should (the event loop's): the kernel kills the process when
    that thread ends.
    """
    check(wanted)
    command = _command(wanted, reports=True, dies_with_parent=True)
    # With asyncio's own pipes, `wait` would return only after every child that inherited them has ended.
    output, stdout = await _open_pipe() if wanted.stdout == PIPE else (None, wanted.stdout)
    if output is not None:
        os.fchown(stdout, wanted.uid, wanted.gid)  # else a program of this user could not open /dev/stdout
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
    report = await _read_all(reading)
    if not report.endswith("ready"):  # a tool may have printed a warning before
        status = await process.wait()
        what = f"could not start {wanted.argv[0]}: {report or f'exit status {status} while entering the namespace'}"
        named = wanted.namespace.name if wanted.namespace is not None else ""
        hint = "" if report or not named else f"check that the namespace exists: ip netns exec {named} true"
        raise NetworkError(what, hint, where=_where(wanted))
    return process


async def end(process: Process, grace: float = 5.0) -> int:
    """Send SIGTERM to the process group, and SIGKILL after `grace` seconds. Return the process's exit status."""
    _signal_group(process, signal.SIGTERM)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(grace):
            await process.wait()
    # Children that outlived the leader had the grace period to end.
    _signal_group(process, signal.SIGKILL)
    return await process.wait()


async def last_words(reading: asyncio.Future[None]) -> None:
    """Wait until `reading`, the task that reads an ended process's output, is done. The wait has a short time limit,
    because a child of the process may keep the pipe open."""
    with contextlib.suppress(TimeoutError):
        # Not `wait_for`: in Python 3.11 it can swallow a cancellation that arrives just as `reading` finishes.
        async with asyncio.timeout(_LAST_WORDS):
            await reading


def exec_argv(wanted: Spawn) -> list[str]:
    """Return the arguments for os.execve that replace the calling process by the program of `wanted`. The program
    then runs in the caller's terminal, with the user, network and files of `wanted`. Pass the result of
    `carried_environment` to os.execve as the environment. Raises NetworkError."""
    check(wanted)
    return _command(wanted, reports=False, dies_with_parent=False)


def carried_environment(wanted: Spawn) -> dict[str, str]:
    """Return the program's environment variables under neutral names. The tools that start the program run as root
    and would act on a variable such as LD_PRELOAD. After the switch to the program's user, the variables get
    their real names back."""
    return {_CARRIER.format(number): value for number, (_, value) in enumerate(_variables(wanted))}


def check(wanted: Spawn) -> None:
    """Raise NetworkError if the program could not run, for example because the file or the working directory does
    not exist. Nothing is started."""
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
    """Return the command line that starts the program. With `reports`, standard input must be the write end of a
    pipe to weft: the setup writes its errors there, or `ready` if there are none. With `dies_with_parent`, the
    kernel kills the program when its parent ends."""
    setup = [*mount_lines(wanted.view, wanted.uid, wanted.gid), f"cd {shlex.quote(wanted.working_directory)}"]
    if wanted.hostname:
        # The kernel accepts 64 bytes; kubelet shortens host names in the same way.
        setup.append(f"printf %s {shlex.quote(wanted.hostname[:63])} >/proc/sys/kernel/hostname")
    kept = ["-all", *(f"+{each}" for each in wanted.capabilities)]
    privileges = [
        _tool("setpriv"),
        *(f"--reuid={wanted.uid}", f"--regid={wanted.gid}", "--clear-groups"),
        *(f"--inh-caps={','.join(kept)}", f"--bounding-set={','.join(kept)}", "--no-new-privs"),
        *([f"--ambient-caps={','.join(kept)}"] if wanted.capabilities else []),
        # setpriv sets this after changing the user, because changing the user clears it.
        *(["--pdeathsig=KILL"] if dies_with_parent else []),
        "--",
    ]
    lines = [
        *(["exec 3>&2 2>&0"] if reports else []),
        # The tools are looked up in the machine's directories, whatever PATH the program has.
        f"PATH={SYSTEM_PATH}",
        *(line if line.endswith("|| :") else f"{line} || exit 126" for line in setup),
        *(["printf ready >&2", "exec 2>&3 3>&- </dev/null"] if reports else []),
        f'exec {shlex.join([*privileges, "/bin/sh", "-c", _unpack(wanted), "weft"])} "$@"',
    ]
    # 1 byte, not 0: with a limit of 0 the kernel still pipes the dump to a program, if core_pattern names one.
    limits = [] if wanted.core_dumps else [_tool("prlimit"), "--core=1:1", "--"]
    return [
        *limits,
        *([] if wanted.namespace is None else [_tool("nsenter"), f"--net={wanted.namespace.path}"]),
        *(_tool("unshare"), "--mount", "--propagation", "private", *(["--uts"] if wanted.hostname else [])),
        *("/bin/sh", "-c", "\n".join(lines), "weft", str(_find(wanted)), *wanted.argv[1:]),
    ]


def _unpack(wanted: Spawn) -> str:
    """Return shell lines that give the environment variables of `carried_environment` their real names back, and
    then exec the program. The lines run as the program's user."""
    names = [name for name, _ in _variables(wanted)]
    carriers = [_CARRIER.format(number) for number in range(len(names))]
    unset = [*carriers, *(name for name in _SHELL_VARIABLES if name not in names)]
    given = [f'export {name}="${carrier}"' for name, carrier in zip(names, carriers, strict=True)]
    return "\n".join([*given, f"unset {' '.join(unset)}", 'exec "$@"'])


def _where(wanted: Spawn) -> str:
    return str(wanted.namespace or "this machine")


def _variables(wanted: Spawn) -> list[tuple[str, str]]:
    # A shell does not accept or pass on variables with other names.
    return [item for item in wanted.environment.items() if _VARIABLE.fullmatch(item[0])]


def _find(wanted: Spawn) -> Path:
    """Return the program's full path; a name without a slash is looked up in the PATH of the program's own
    environment."""
    name = wanted.argv[0]
    if "/" in name:
        path = Path(wanted.working_directory, name)
        if not path.exists():
            raise NetworkError(f"program {path} does not exist", "correct the command", where=_where(wanted))
        return path
    search = wanted.environment.get("PATH", SYSTEM_PATH)
    program = shutil.which(name, path=search)
    if program is None:
        what = f"program `{name}` is not in {search}"
        raise NetworkError(what, "give its full path, or set PATH in the environment", where=_where(wanted))
    return Path(wanted.working_directory, program)


def _check_reachable(wanted: Spawn, path: Path, role: str) -> None:
    real = path.resolve()
    if any(is_below(real, Path(visible).resolve()) for visible in wanted.view.visible):
        return
    if any(real == Path(hidden).resolve() for hidden in wanted.view.hidden):
        return
    closed = closed_ancestors(wanted.uid, wanted.gid, real)
    if real.is_dir() and not may(wanted.uid, wanted.gid, real, 1):
        closed.append(real)
    if closed:
        what = f"{role} {path} cannot be reached by UID {wanted.uid}: {closed[0]} is closed to that user"
        raise NetworkError(what, f"chmod o+x {shlex.quote(str(closed[0]))}, or move the {role}", where=_where(wanted))


def _interpreter(program: Path) -> str:
    """Return the interpreter in the first line of a script; empty if the program is no script."""
    with contextlib.suppress(OSError), program.open("rb") as file:
        first = file.readline(256)
        if first.startswith(b"#!"):
            words = first[2:].split(maxsplit=1)
            return os.fsdecode(words[0]) if words else ""
    return ""


def _tool(name: str) -> str:
    program = shutil.which(name, path=SYSTEM_PATH)
    if program is None:
        raise NetworkError(f"the program `{name}` is missing", "apt-get install util-linux")
    return program


def _signal_group(process: Process, number: signal.Signals) -> None:
    # The process leads its own group, which may be empty by now.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


async def _open_pipe() -> tuple[asyncio.StreamReader, int]:
    """Return the reader of a new pipe, and the file descriptor to write to."""
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
