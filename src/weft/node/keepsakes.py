"""State that an agent leaves for the next agent of its node: tokens, certificates and keys. With this state, a proxy
that starts while one agent replaces another gets its certificate at once.

Each pod's state is one file, which the next agent reads once. Rule: the state is never on a disk. The directory must
be a tmpfs or ramfs that only root can enter; any other directory is rejected. (On a machine with swap, a tmpfs may
be swapped out, as may this process's own memory.)
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import stat
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from weft.base.problem import Problem, Where
from weft.ca.certificates import Issued
from weft.model.identity import Identity
from weft.node.identities import Certified, certified
from weft.node.key import Key, KeyKind

log = logging.getLogger("weft.node.keepsakes")

_IN_MEMORY = {0x01021994: "tmpfs", 0x858458F6: "ramfs"}  # statfs(2)
_STATFS_BYTES = 256  # larger than the struct of any architecture; its first word is the file system's type
_MOST_BYTES = 256 * 1024


class KeepsakesRefused(Exception):
    """The state directory is not safe for keys: it is on a disk, another user owns it, or it is not a directory."""

    def __init__(self, what: str, hint: str, *, directory: Path) -> None:
        self.problem = Problem(Where(file=str(directory)), what, hint)
        super().__init__(str(self.problem))


class Keepsake(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one pod and its volume, as one file. `path`: that of the volume. `token`: the pod's token. `chain`
    and `key` (PEM): the pod's certificate and its key. All three are empty if the agent has none. `key_kind`: the kind
    of the key. `obtained`: when the certificate was issued, in Unix time."""

    volume_id: str
    path: str
    namespace: str
    pod: str
    uid: str
    service_account: str
    token: str = ""
    chain: tuple[str, ...] = ()
    key: bytes = b""
    key_kind: KeyKind = KeyKind.P256
    obtained: float = 0.0

    def __repr__(self) -> str:
        return f"<state of {self.namespace}/{self.pod}>"

    def with_certificate(self, certificate: Certified) -> Keepsake:
        return msgspec.structs.replace(
            self,
            chain=certificate.chain,
            key=certificate.key.secret_pem(),
            key_kind=certificate.key.kind,
            obtained=certificate.obtained,
        )

    def certificate(self, identity: Identity, now: float) -> Certified | None:
        """Return the kept certificate if it is for `identity` and valid at `now`, else None."""
        if not self.chain:
            return None
        epoch = datetime.fromtimestamp(self.obtained, UTC)
        issued = Issued(chain=self.chain, not_before=epoch, expires=epoch, issued=epoch)
        try:
            key = Key.from_secret_pem(self.key, self.key_kind)
            current = certified(issued, key, identity, now)
        except ValueError as error:
            log.warning(
                "%s/%s: the certificate that the previous agent kept cannot be used: %s",
                self.namespace,
                self.pod,
                error,
            )
            return None
        return msgspec.structs.replace(current, obtained=self.obtained)


class Keepsakes:
    def __init__(self, directory: Path) -> None:
        """Use `directory`, created if missing. Raises KeepsakesRefused if keys must not be stored there."""
        self._directory = directory
        _refuse_unless_in_memory(directory)

    def keep(self, keepsake: Keepsake) -> None:
        """Write the state of one pod. A failure affects only the next agent, so it is logged and not raised."""
        file = self._directory / f"{keepsake.uid}.json"
        fresh = file.with_suffix(".new")
        try:
            descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            with os.fdopen(descriptor, "wb") as opened:
                opened.write(msgspec.json.encode(keepsake))
            fresh.rename(file)
        except OSError as error:
            log.error("cannot keep %r for the next agent: %s", keepsake, error)

    def drop(self, uid: str) -> None:
        for name in (f"{uid}.json", f"{uid}.new"):
            with contextlib.suppress(OSError):
                (self._directory / name).unlink(missing_ok=True)

    def all(self) -> list[Keepsake]:
        keepsakes = []
        for file in sorted(self._directory.glob("*.json")):
            try:
                descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
                with os.fdopen(descriptor, "rb") as opened:
                    if os.fstat(descriptor).st_uid != os.geteuid():
                        raise ValueError("not ours")
                    keepsakes.append(msgspec.json.decode(opened.read(_MOST_BYTES), type=Keepsake))
            except (OSError, ValueError, RecursionError) as error:
                # The error message for a truncated file may contain part of its secrets, so only the error's type is
                # logged.
                log.warning("%s cannot be read (%s) and is deleted", file, type(error).__name__)
                self.drop(file.stem)
        return keepsakes


def _refuse_unless_in_memory(directory: Path) -> None:
    hint = "use a directory in memory: --state DIR, such as an emptyDir of medium Memory"
    try:
        directory.mkdir(mode=0o700, exist_ok=True)
        status, kind = directory.lstat(), _kind_of(directory)
    except OSError as error:
        raise KeepsakesRefused(f"the directory cannot be used: {error.strerror}", hint, directory=directory) from error
    if not stat.S_ISDIR(status.st_mode):
        raise KeepsakesRefused("this is not a directory", hint, directory=directory)
    if kind not in _IN_MEMORY:
        raise KeepsakesRefused(
            f"the directory is on a disk (file system {kind:#x}), where keys must not be stored",
            hint,
            directory=directory,
        )
    if status.st_uid != os.geteuid():
        raise KeepsakesRefused(f"the directory belongs to user {status.st_uid}", hint, directory=directory)
    if status.st_mode & 0o077:
        # Kubelet creates an emptyDir with access for all users. Only this container mounts it, and from here on only
        # root can enter.
        directory.chmod(0o700)


def _kind_of(directory: Path) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    buffer = ctypes.create_string_buffer(_STATFS_BYTES)
    if libc.statfs(os.fsencode(directory), buffer) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return ctypes.c_long.from_buffer(buffer).value & 0xFFFFFFFF
