"""The run directory of a mesh on this machine: contains its lock, sockets and logs, and makes it possible to find the
mesh by name.

The process that has the lock is the mesh. A directory without a locked lock file belongs to a mesh that was killed: the
next `weft up` or `weft down` kills its processes and removes its namespaces and files, whatever state they are in.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import re
import shutil
import signal
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from weft.local.error import LocalError
from weft.local.users import free_users

if TYPE_CHECKING:
    from weft.netns.namespace import NetworkNamespace

DEFAULT_BASE = Path("/run/weft")

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,30}[a-z0-9])?")
_KILL_TIMEOUT = 5.0  # seconds; a killed process ends in milliseconds, unless it is blocked in the kernel
_LONGEST_SOCKET = 107  # bytes; the kernel's limit for the path of a Unix socket
_SECRETS = "sds"
_LONGEST_NAME = f"{_SECRETS}/99999/sds.sock"  # the longest path of a socket below the run directory
_FULL_DISK = "check whether the disk is full (df /run), or set WEFT_RUN_DIR"

log = logging.getLogger("weft.local.run_directory")


class LockOwner(msgspec.Struct, frozen=True):
    """The content of the lock file: the process that runs the mesh, the mesh's directory of YAML, the time at which the
    mesh was started (Unix time), and the first UID of the mesh's apps (`users`)."""

    pid: int
    directory: str  # the YAML directory, shown to users
    started: float  # Unix time
    users: int = 0  # the first UID of the mesh's apps


class MeshRecord(msgspec.Struct, frozen=True):
    """A mesh that has a run directory (`path`) on this machine. `running`: false if the mesh was killed and its remains
    were not removed. `pid`: the process that runs the mesh. `started`: when the mesh was started, in Unix time.
    `directory`: the mesh's directory of YAML."""

    name: str
    path: str
    running: bool  # False: the mesh was killed, and its remains were not removed
    pid: int = 0
    directory: str = ""
    started: float = 0.0


class RunDirectory:
    """The run directory of a running mesh, locked by the mesh's process. It is removed when the mesh stops. The run
    directory of a killed mesh stays until the next `weft up` or `weft down`."""

    def __init__(self, name: str, path: Path, lock: int, users: range) -> None:
        self.name, self.path = name, path
        self.users = users  # UIDs for the apps of this mesh; no other mesh uses them
        self._lock = lock

    @property
    def api_socket(self) -> Path:
        return self.path / "api.sock"

    @property
    def xds_socket(self) -> Path:
        return self.path / "xds.sock"

    @property
    def owner_socket(self) -> Path:
        """Return the path of the xDS socket to which only root may connect, for requests of istioctl. Its directory
        has the mode 0700 before the socket is created, so no other user can open the socket at any moment."""
        directory = self.path / "owner"
        directory.mkdir(mode=0o700, exist_ok=True)
        return directory / "xds.sock"

    @property
    def secrets(self) -> Path:
        """Return the directory of the pods' SDS sockets, with one subdirectory per pod. A subdirectory's name is the
        Unix user ID of the pod's app, because the pod's name could make the socket's path too long."""
        return self.path / _SECRETS

    @property
    def doors(self) -> Path:
        """Return the directory of the gateways' sockets. It has one subdirectory per gateway pod, named by the pod's
        Unix user ID, with a socket for each published port. Only the proxies' user may enter a subdirectory. Only
        root may enter the run directory itself, so a process reaches these sockets only if this directory is
        mounted into its view of the files."""
        directory = self.path / "doors"
        directory.mkdir(mode=0o755, exist_ok=True)
        return directory

    def namespace_name(self, *parts: str) -> str:
        return f"{namespace_prefix(self.name, self.path.parent)}{'.'.join(parts)}"

    def pod(self, pod_namespace: str, pod: str) -> Path:
        path = self.path / "pods" / pod_namespace / pod
        path.mkdir(parents=True, exist_ok=True)
        return path

    def release(self) -> None:
        """Remove the directory and release the lock. Idempotent."""
        if self._lock < 0:
            return
        end_leftovers(self.name, self.path.parent)
        _remove(self.path)
        output_file(self.name, self.path.parent).unlink(missing_ok=True)
        os.close(self._lock)
        self._lock = -1
        _remove_empty_base(self.path.parent)


def base_directory() -> Path:
    return Path(os.environ.get("WEFT_RUN_DIR") or DEFAULT_BASE)


def socket_of(name: str) -> Path:
    return base_directory() / name / "api.sock"


def output_file(name: str, base: Path | None = None) -> Path:
    """Return the file for the output of the mesh `name` in the background. `base`: the directory of the run
    directories; None for the default. The file is beside the mesh's run directory, which exists only while the mesh
    runs."""
    return (base or base_directory()) / f"{name}.log"


def namespace_prefix(name: str, base: Path | None = None) -> str:
    """Return the prefix of the names of a mesh's network namespaces. Namespaces are shared by the whole machine,
    while a mesh's name is unique only in its base directory. So the prefix contains a hash of the base
    directory's path, unless that is the default one."""
    import hashlib

    real = os.path.realpath(base or base_directory())
    place = "" if real == os.path.realpath(DEFAULT_BASE) else f"@{hashlib.sha256(real.encode()).hexdigest()[:8]}"
    # A mesh's name contains neither a dot nor an @, so no mesh's prefix begins another mesh's prefix.
    return f"weft-{name}{place}."


def acquire(name: str, directory: str) -> RunDirectory:
    """Create and lock the run directory of the mesh `name`, after removing the remains of a killed mesh with this name.
    Raises LocalError, for example if a mesh with this name is running."""
    if not _NAME.fullmatch(name):
        raise LocalError(
            f"`{name}` is not a valid name for a mesh", "use up to 32 lower-case letters, digits and dashes"
        )
    path = base_directory() / name
    if len(os.fsencode(path / _LONGEST_NAME)) > _LONGEST_SOCKET:
        raise LocalError(
            f"the path {path} is too long for Unix sockets", "set WEFT_RUN_DIR to a shorter path, or unset it"
        )
    with _alone(path):
        lock = _lock(name, path)
        try:
            users = free_users(_users_of_others(path))
            os.ftruncate(lock, 0)
            os.pwrite(lock, msgspec.json.encode(LockOwner(os.getpid(), directory, time.time(), users.start)), 0)
        except BaseException:
            os.close(lock)
            raise
    try:
        if end_leftovers(name, path.parent):
            log.debug("removed the remains of mesh %s, which had been killed", name)
        for entry in path.iterdir():
            if entry.name != "lock":
                _remove(entry)
    except BaseException:
        os.close(lock)
        raise
    return RunDirectory(name, path, lock, users)


def meshes() -> list[MeshRecord]:
    """Return every mesh in the base directory (WEFT_RUN_DIR, or the default one), running or killed, sorted by name."""
    base = base_directory()
    try:
        names = sorted(entry.name for entry in base.iterdir() if entry.is_dir())
    except (FileNotFoundError, PermissionError):
        return []
    return [_record(name, base / name) for name in names if _NAME.fullmatch(name)]


def find(name: str) -> MeshRecord | None:
    return next((record for record in meshes() if record.name == name), None)


def clean(name: str) -> bool:
    """Remove the remains of a killed mesh. Return False if there is nothing to remove, or if the mesh is running."""
    path = base_directory() / name
    if not path.is_dir():
        output_file(name).unlink(missing_ok=True)
        _remove_empty_base(path.parent)
        return end_leftovers(name, path.parent)
    try:
        with _alone(path):
            lock = _lock(name, path)
    except LocalError:
        return False
    try:
        end_leftovers(name, path.parent)
        _remove(path)
        output_file(name).unlink(missing_ok=True)
    finally:
        os.close(lock)
    _remove_empty_base(path.parent)
    return True


def end_leftovers(name: str, base: Path) -> bool:
    """Delete the network namespaces of the mesh `name` (whose run directory is in `base`) after killing every process
    in them. Return whether there were any."""
    from weft.netns import namespace  # imported late: every command lists meshes, and few commands clean up

    namespaces = [each for each in namespace.namespaces() if each.name.startswith(namespace_prefix(name, base))]
    for each in namespaces:
        end_processes(each)
        namespace.delete(each)
    return bool(namespaces)


def end_processes(where: NetworkNamespace, uid: int | None = None) -> None:
    """Kill all processes in the network namespace `where`, or with `uid` only those of one user. Return when they have
    ended, or after 5 seconds."""
    from weft.netns import namespace

    deadline = time.monotonic() + _KILL_TIMEOUT
    while pids := [pid for pid in namespace.processes_in(where) if not has_ended(pid) and uid in (None, _user(pid))]:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            log.warning("%s: processes %s still run %.0f s after SIGKILL", where, pids, _KILL_TIMEOUT)
            return
        time.sleep(0.005)


def has_ended(pid: int) -> bool:
    """Return whether a process has ended. A zombie, whose parent has not read its exit status yet, has ended."""
    try:
        return (
            Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rsplit(")", 1)[1].split()[0] == "Z"
        )
    except OSError:
        return True


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Lock the base directory of `path`, creating it if it is missing. While the lock is taken, no other mesh can
    start, and the base directory is not removed."""
    base = path.parent
    try:
        while True:
            if not _made(base, 0o755):
                continue
            try:
                handle = os.open(base, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            except FileNotFoundError:  # the last mesh has just removed the base directory
                continue
            fcntl.flock(handle, fcntl.LOCK_EX)
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(handle), base.stat()):
                    break
            os.close(handle)
    except PermissionError as error:
        raise LocalError(f"{error.filename}: permission denied", "run as root: sudo weft …") from error
    except OSError as error:
        raise LocalError(f"cannot create {base}: {error.strerror}", _FULL_DISK) from error
    try:
        yield
    finally:
        os.close(handle)


def _made(path: Path, mode: int) -> bool:
    """Create the directory `path` with this mode, if it does not exist, and return True. Return False if another mesh
    removed the directory in the meantime, so that the caller must try again."""
    try:
        path.mkdir(mode=mode, parents=True)
    except FileExistsError:
        try:
            if not stat.S_ISDIR(path.stat().st_mode):
                raise
        except FileNotFoundError:
            return False
    return True


def _remove_empty_base(base: Path) -> None:
    """Remove the base directory if it is the default one and empty. Any other base directory was chosen, and perhaps
    created, by the user, and is kept."""
    if base != DEFAULT_BASE:
        return
    with contextlib.suppress(OSError):
        handle = os.open(base, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            # Another mesh may have removed the directory, and a third one created it again: that new directory must
            # stay.
            if os.path.samestat(os.fstat(handle), base.stat()):
                base.rmdir()
        finally:
            os.close(handle)


def _users_of_others(path: Path) -> set[int]:
    """Return the first UID of the UID range of each other mesh in the base directory, which contains the run directory
    `path`. Killed meshes are included, because their apps may still run."""
    owners = (_owner(entry / "lock") for entry in path.parent.iterdir() if entry != path)
    return {owner.users for owner in owners if owner is not None}


def _user(pid: int) -> int:
    try:
        return Path(f"/proc/{pid}").stat().st_uid
    except OSError:
        return -1


def _lock(name: str, path: Path) -> int:
    try:
        while True:
            if not _made(path, 0o700):
                continue
            file = path / "lock"
            try:
                lock = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            except FileNotFoundError:  # the previous mesh is just removing the directory
                continue
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                owner = _owner(file)
                os.close(lock)
                pid = f" (pid {owner.pid}, {owner.directory})" if owner else ""
                hint = f"`weft down {name}` stops it; `weft up --name OTHER` starts another one"
                raise LocalError(f"a mesh named `{name}` is running already{pid}", hint) from None
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(lock), file.stat()):
                    return lock
            os.close(lock)
    except PermissionError as error:
        raise LocalError(f"{error.filename}: permission denied", "run as root: sudo weft …") from error
    except OSError as error:
        raise LocalError(f"cannot create {path}: {error.strerror}", _FULL_DISK) from error


def _record(name: str, path: Path) -> MeshRecord:
    file = path / "lock"
    owner = _owner(file)
    details = {"pid": owner.pid, "directory": owner.directory, "started": owner.started} if owner else {}
    return MeshRecord(name, str(path), running=_is_locked(file), **details)  # type: ignore[arg-type]


def _is_locked(file: Path) -> bool:
    try:
        with file.open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        pass
    return False


def _owner(file: Path) -> LockOwner | None:
    try:
        return msgspec.json.decode(file.read_bytes(), type=LockOwner)
    except (OSError, msgspec.DecodeError):
        return None


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        # The lock file is removed last: while it exists, no other process can become this mesh.
        for entry in sorted(path.iterdir(), key=lambda entry: entry.name == "lock"):
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry, ignore_errors=True)
            else:
                entry.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            path.rmdir()
    else:
        path.unlink(missing_ok=True)
