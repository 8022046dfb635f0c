"""Named network namespaces: create, delete, list and enter them, and find their processes.

A namespace is a name under /run/netns, so `ip netns` shows it. weft enters a namespace only on a new thread, which ends
afterwards: each thread has its own current namespace, and that of all other threads, above all of the event loop's,
never changes.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import gc
import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from weft.base.problem import Problem, Where

DIRECTORY = Path("/run/netns")
OWN = Path("/proc/self/ns/net")  # the namespace of this process
_FIRST = 0xEFFFFFF9  # inode of the kernel's initial network namespace; not fixed in older kernels

_CLONE_NEWNET = 0x40000000
_MS_BIND, _MS_REC, _MS_SHARED = 0x1000, 0x4000, 1 << 20
_MNT_DETACH = 2

_Result = TypeVar("_Result")


class NetworkError(Exception):
    """The kernel or a tool failed. `problem` has what failed, in which namespace, and what to do next."""

    def __init__(self, what: str, hint: str = "", *, where: str = "") -> None:
        self.problem = Problem(Where(object=where), what, hint)
        super().__init__(str(self.problem))


class NetworkNamespace(msgspec.Struct, frozen=True):
    name: str

    @property
    def path(self) -> Path:
        return DIRECTORY / self.name

    def __str__(self) -> str:
        return f"namespace {self.name}"


def own() -> NetworkNamespace:
    """Return the network namespace of this process."""
    return NetworkNamespace(str(OWN))  # an absolute path is taken as it is


def is_kernels_first() -> bool:
    """Return whether this process is in the kernel's initial network namespace; always False on older kernels."""
    return OWN.stat().st_ino == _FIRST


def make(name: str) -> NetworkNamespace:
    """Create an empty namespace; its loopback interface is still down."""
    if not name or "/" in name or name in (".", ".."):
        raise NetworkError(f"`{name}` cannot be a namespace's name", "use letters, digits and dashes")
    namespace = NetworkNamespace(name)
    with _directory_held():
        try:
            namespace.path.open("x").close()
        except FileExistsError:
            raise NetworkError(
                "the namespace exists already", f"ip netns delete {name}", where=str(namespace)
            ) from None

    def unshare() -> None:
        _call("unshare", _CLONE_NEWNET)
        _mount("/proc/thread-self/ns/net", namespace.path, _MS_BIND)

    try:
        _on_own_thread(unshare)
    except OSError as error:
        namespace.path.unlink(missing_ok=True)
        raise NetworkError(
            f"the namespace cannot be created: {error.strerror}", "run as root", where=str(namespace)
        ) from error
    return namespace


def delete(namespace: NetworkNamespace) -> None:
    """Remove the namespace's name. The kernel keeps the network itself until its last process and socket have ended.
    Idempotent."""
    try:
        _call("umount2", os.fsencode(namespace.path), _MNT_DETACH)
    except OSError as error:
        # EINVAL: the file exists but nothing is mounted on it, as after a crash between two steps of make().
        if error.errno not in (errno.ENOENT, errno.EINVAL):
            raise NetworkError(
                f"the namespace cannot be deleted: {error.strerror}", "run as root", where=str(namespace)
            ) from error
    namespace.path.unlink(missing_ok=True)
    _tidy_directory()


def namespaces() -> list[NetworkNamespace]:
    try:
        return [NetworkNamespace(entry.name) for entry in sorted(DIRECTORY.iterdir())]
    except FileNotFoundError:
        return []


def exists(namespace: NetworkNamespace) -> bool:
    return namespace.path.exists()


def run_in(namespace: NetworkNamespace, work: Callable[[], _Result]) -> _Result:
    """Run `work` on a new thread inside the namespace, and wait for it. Sockets and processes that `work` creates stay
    in the namespace."""

    def enter_and_work() -> _Result:
        try:
            handle = os.open(namespace.path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            hint = "list the namespaces with: ip netns"
            raise NetworkError(
                f"the namespace cannot be entered: {error.strerror}", hint, where=str(namespace)
            ) from error
        try:
            # A pod's init container has no privilege to enter a namespace, but is already in the right one.
            if not os.path.samestat(os.fstat(handle), os.stat("/proc/thread-self/ns/net")):  # noqa: PTH116
                _call("setns", handle, _CLONE_NEWNET)
        except OSError as error:
            raise NetworkError(
                f"the namespace cannot be entered: {error.strerror}", "run as root", where=str(namespace)
            ) from error
        finally:
            os.close(handle)
        return work()

    return _on_own_thread(enter_and_work)


def run_in_new(work: Callable[[], _Result]) -> _Result:
    """Run `work` in an unnamed namespace, which ends when `work` is done."""

    def unshare_and_work() -> _Result:
        _call("unshare", _CLONE_NEWNET)
        return work()

    return _on_own_thread(unshare_and_work)


def open_low_ports(namespace: NetworkNamespace) -> None:
    """Let every user listen on ports below 1024 in this namespace. This is safe, because only the programs of one
    pod run there."""
    try:
        run_in(namespace, lambda: Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").write_text("0"))
    except OSError as error:
        what = f"cannot allow ports below 1024: {error.strerror}"
        raise NetworkError(what, "run as root", where=str(namespace)) from error


def socket_in(
    namespace: NetworkNamespace,
    family: socket.AddressFamily = socket.AF_INET,
    kind: socket.SocketKind = socket.SOCK_STREAM,
    protocol: int = 0,
) -> socket.socket:
    """Return a non-blocking socket in the namespace. A socket never changes its namespace, so any thread may use it."""

    def open_socket() -> socket.socket:
        opened = socket.socket(family, kind, protocol)
        opened.setblocking(False)
        return opened

    return run_in(namespace, open_socket)


def ipv6_available() -> bool:
    """Return whether this kernel has IPv6 at all; each namespace can still disable it."""
    return Path("/proc/sys/net/ipv6").is_dir()


def processes_in(namespace: NetworkNamespace) -> list[int]:
    """Return the PIDs of all processes in this network namespace, however they were started and whatever their parent
    is."""
    try:
        wanted = namespace.path.stat()
    except FileNotFoundError:
        return []
    pids = []
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        # Processes may end during the scan.
        with contextlib.suppress(OSError):
            network = Path(f"/proc/{entry.name}/ns/net").stat()
            if (network.st_dev, network.st_ino) == (wanted.st_dev, wanted.st_ino):
                pids.append(int(entry.name))
    return sorted(pids)


@contextlib.contextmanager
def _directory_held() -> Iterator[None]:
    """Create /run/netns and mount it, and hold its lock inside the block. The directory is a mount of its own, as with
    `ip netns`, so that one unmount hides all namespaces from a process.

    The lock is the one that `ip netns` takes; without the lock, two processes that start at once would mount the
    directory twice.
    """
    try:
        handle = _open_locked()
    except OSError as error:
        raise NetworkError(
            f"the directory cannot be created or mounted: {error.strerror}", "run as root", where=str(DIRECTORY)
        ) from error
    try:
        yield
    finally:
        os.close(handle)


def _open_locked() -> int:
    while True:
        DIRECTORY.mkdir(mode=0o755, parents=True, exist_ok=True)
        handle = os.open(DIRECTORY, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(handle, fcntl.LOCK_EX)
        # The previous holder of the lock may have removed the directory before releasing it.
        if DIRECTORY.exists() and os.path.samestat(os.fstat(handle), DIRECTORY.stat()):
            break
        os.close(handle)
    try:
        if not _is_mounted(DIRECTORY):
            _mount(DIRECTORY, DIRECTORY, _MS_BIND | _MS_REC)
            _mount("", DIRECTORY, _MS_SHARED | _MS_REC)
    except OSError:
        os.close(handle)
        raise
    return handle


def _tidy_directory() -> None:
    """Unmount and remove /run/netns after the last namespace was deleted. If a process still uses the directory, it is
    kept."""
    try:
        handle = os.open(DIRECTORY, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        if not any(DIRECTORY.iterdir()):
            # Detached, because this handle keeps the mount busy; the directory is empty, so nothing is lost.
            _call("umount2", os.fsencode(DIRECTORY), _MNT_DETACH)
            DIRECTORY.rmdir()
    except OSError:
        pass
    finally:
        os.close(handle)


def _is_mounted(path: Path) -> bool:
    # os.path.ismount compares only devices, and a directory that is bind-mounted onto itself has its parent's device.
    mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
    return any(line.split(" ", 5)[4] == str(path) for line in mounts.splitlines())


def _on_own_thread(work: Callable[[], _Result]) -> _Result:
    results: list[_Result] = []
    failures: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as failure:  # noqa: BLE001 - carried over to the caller's thread, never lost
            failures.append(failure)

    thread = threading.Thread(target=run, name="weft-netns", daemon=True)
    with _collection_pause.active():  # until the thread has ended: pending garbage would be collected on it
        thread.start()
        thread.join()
    if failures:
        raise failures[0]
    return results[0]


class _CollectionPause:
    """Disables garbage collection while a thread is inside a namespace. Python collects garbage on any busy thread, and
    a finalizer may start a new thread there: a gRPC thread, for example, would then run and connect inside the wrong
    namespace."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._threads = 0
        self._was_enabled = False

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        with self._lock:
            if not self._threads:
                self._was_enabled = gc.isenabled()
                gc.disable()
            self._threads += 1
        try:
            yield
        finally:
            with self._lock:
                self._threads -= 1
                if not self._threads and self._was_enabled:
                    gc.enable()


_collection_pause = _CollectionPause()
_libc = ctypes.CDLL(None, use_errno=True)


def _call(name: str, *arguments: int | bytes | None) -> None:
    if getattr(_libc, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _mount(source: str | Path, target: Path, flags: int) -> None:
    _call("mount", os.fsencode(source), os.fsencode(target), b"none", flags, None)
