"""The workloads of a machine, declared by the files of a directory: one JSON file for each, written by the program that
starts workloads.

Input: the directory. Output: the whole set of registrations, again after each change. inotify events only trigger a
scan; the scan's result is what counts. Rules: only root may declare a workload's identity, so a file of another owner
is not read; a file that cannot be read affects no other file, and its last valid registration stays in force.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import stat
import threading
from collections.abc import AsyncGenerator, Iterable, Iterator
from pathlib import Path

import msgspec

from weft.base.file_events import FileEvents
from weft.base.problem import Problem, Where
from weft.model.identity import Identity, parse_identity
from weft.model.proxy import PROXY_GID, PROXY_UID
from weft.node.door import LONGEST_PATH
from weft.node.key import KeyKind

log = logging.getLogger("weft.node.registrations")

SWEEP = 2.0  # seconds between scans that no event triggered
_MOST_BYTES = 64 * 1024


class Registration(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One workload, as its file declares it. Paths are absolute. `token_file`: read again for each certificate.
    `socket`: the path at which the agent creates the workload's socket. `network_namespace`: the file of the pod's
    network namespace; only processes in it may connect to the socket; "" if that is not checked. `uid`, `gid`: the user
    and group that may connect. `key`: the kind of key to generate."""

    namespace: str
    pod: str
    pod_uid: str
    service_account: str = "default"
    trust_domain: str = "cluster.local"
    token_file: str  # kept fresh by the program that wrote it; read again for each certificate
    socket: str  # created by the agent, in a directory that contains nothing else
    network_namespace: str = ""  # file of the pod's; empty: any process of user `uid` may connect
    key: KeyKind = KeyKind.P256
    uid: int = PROXY_UID
    gid: int = PROXY_GID

    @property
    def name(self) -> str:
        return f"{self.namespace}/{self.pod}"

    @property
    def identity(self) -> Identity:
        return Identity(self.trust_domain, self.namespace, self.service_account)


class DirectoryRefused(Exception):
    """The registration directory is not usable, for example because users other than root could write files in it.
    `problem` has the reason and a hint."""

    def __init__(self, what: str, hint: str, *, file: Path) -> None:
        self.problem = Problem(Where(file=str(file)), what, hint)
        super().__init__(str(self.problem))


def parse_registration(text: bytes) -> Registration:
    """Parse the content of a registration file. Raises ValueError with all wrong fields, not only the first."""
    try:
        fields = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
        if wrong := _wrong_names(fields.keys()):
            raise ValueError(wrong)
        registration = msgspec.json.decode(text, type=Registration)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(str(error)) from error
    if problems := "; ".join(_wrong_values(registration)):
        raise ValueError(problems)
    return registration


def _wrong_names(names: Iterable[str]) -> str:
    fields = msgspec.structs.fields(Registration)
    field_names, needed = [each.name for each in fields], [each.name for each in fields if each.required]
    unknown = [name for name in names if name not in field_names]
    lacking = [name for name in needed if name not in names]
    wrong = [f"unknown: {', '.join(map(ascii, unknown))}"] if unknown else []
    wrong += [f"missing: {', '.join(lacking)}"] if lacking else []
    optional = [name for name in field_names if name not in needed]
    fields_are = f"required fields: {', '.join(needed)}; optional fields: {', '.join(optional)}"
    return "; ".join([*wrong, fields_are]) if wrong else ""


def _wrong_values(registration: Registration) -> Iterator[str]:
    try:
        parse_identity(str(registration.identity))
    except ValueError as error:
        yield str(error)
    if not registration.pod or "/" in registration.pod or not registration.pod_uid:
        yield "pod and pod_uid must not be empty, and pod must be a name without /"
    for field in ("token_file", "socket", "network_namespace"):
        value = getattr(registration, field)
        if value and (not value.startswith("/") or ".." in value.split("/") or "\0" in value):
            yield f"{field} must be an absolute path, without .."
    if not registration.token_file or not registration.socket:
        yield "token_file and socket are required"
    if len(os.fsencode(registration.socket)) > LONGEST_PATH:
        yield f"socket is too long: at most {LONGEST_PATH} bytes"
    if registration.uid == 0:
        yield "uid is the proxy's user and must not be root"


async def watch_registrations(directory: Path) -> AsyncGenerator[dict[str, Registration], None]:
    """Yield all registrations by file name, at once and after each change, without end. Raises DirectoryRefused at the
    start. Later, while the directory is missing or accessible to other users, the last registrations stay in force."""
    refuse_unless_ours_alone(directory)
    looks = _Looks(directory)
    try:
        registrations = looks.look()
        yield registrations
        while True:
            await asyncio.to_thread(looks.wait)
            before, registrations = registrations, looks.look()
            if registrations != before:
                yield registrations
    finally:
        looks.stop()


def refuse_unless_ours_alone(directory: Path) -> None:
    try:
        status = directory.stat()
    except OSError as error:
        raise DirectoryRefused(
            f"the directory cannot be read: {error.strerror}", f"create it: mkdir -m 700 -p {directory}", file=directory
        ) from error
    if not stat.S_ISDIR(status.st_mode):
        raise DirectoryRefused("this is not a directory", "give a directory: --workloads DIR", file=directory)
    if status.st_uid != os.geteuid() or status.st_mode & 0o077:
        mode = stat.S_IMODE(status.st_mode)
        raise DirectoryRefused(
            f"the directory is open to other users (owner {status.st_uid}, mode {mode:04o}); every user "
            "who can write there could declare any identity",
            f"chown {os.geteuid()} {directory} && chmod 700 {directory}",
            file=directory,
        )


class _Looks:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._stopped = threading.Event()
        self._events: FileEvents | None = None
        self._known: dict[str, Registration] = {}
        self._refused = ""
        self._wrong: dict[str, str] = {}  # last error logged for each file, so that it is logged once

    def stop(self) -> None:
        self._stopped.set()

    def wait(self) -> None:
        if self._events is None:
            self._stopped.wait(SWEEP)
            return
        try:
            self._events.wait(SWEEP)
        except RuntimeError:  # the inotify queue failed; it is created again
            self._unlisten()

    def look(self) -> dict[str, Registration]:
        try:
            refuse_unless_ours_alone(self._directory)
            self._known = self._read_all()
            self._refused = ""
        except (DirectoryRefused, OSError) as error:
            self._unlisten()
            if self._refused != str(error):
                self._refused = str(error)
                log.error("%s; the last registrations stay in force", error)
        return _without_doubles(self._known)

    def _unlisten(self) -> None:
        if self._events is not None:
            self._events.close()
            self._events = None

    def _read_all(self) -> dict[str, Registration]:
        if self._events is None:
            with contextlib.suppress(OSError, RuntimeError):  # no inotify watches left: rely on the sweeps
                self._events = FileEvents([str(self._directory)], self._stopped)
        present: dict[str, Registration] = {}
        names = sorted(entry.name for entry in os.scandir(self._directory) if entry.name.endswith(".json"))
        for name in names:
            try:
                present[name] = parse_registration(_read(self._directory / name))
                self._wrong.pop(name, None)
            except FileNotFoundError:
                continue
            except (OSError, ValueError) as error:
                if self._wrong.get(name) != str(error):
                    self._wrong[name] = str(error)
                    meanwhile = "its last valid registration" if name in self._known else "no registration"
                    log.error(
                        "%s: %s; until the file is corrected, %s is in force", self._directory / name, error, meanwhile
                    )
                if name in self._known:
                    present[name] = self._known[name]
        self._wrong = {name: why for name, why in self._wrong.items() if name in names}
        return present


def _without_doubles(present: dict[str, Registration]) -> dict[str, Registration]:
    """Return the registrations, by file name, each pod and each socket only once: if several files register the same
    pod or socket, the file whose name sorts first counts."""
    pods: set[str] = set()
    sockets: set[str] = set()
    kept = {}
    for name, registration in present.items():
        if registration.name in pods or registration.socket in sockets:
            log.error("%s is ignored: another file already registers %s or its socket", name, registration.name)
            continue
        pods.add(registration.name)
        sockets.add(registration.socket)
        kept[name] = registration
    return kept


def _read(file: Path) -> bytes:
    descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as opened:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o022:
            raise ValueError("this is not a file that only root can write")
        text = opened.read(_MOST_BYTES + 1)
    if len(text) > _MOST_BYTES:
        raise ValueError(f"the file is longer than {_MOST_BYTES} bytes")
    return text
