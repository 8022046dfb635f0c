"""An archive of what was collected, that can be given to others: names and bytes come in, and whatever is a key, a
token or a password goes out of them before they are written. Bounded: a file that is too long loses its beginning or
its end, and once the whole is full, what comes later is only named.

Rule: what still looks like a private key after that is not written at all.
"""

from __future__ import annotations

import io
import re
import tarfile
import time
from typing import IO

from weft.base.key_search import kinds_of_keys
from weft.cli.look.bug_report.redact import without_named_secrets

MOST_FILE = 8 << 20
MOST_TOTAL = 256 << 20  # before compression, which takes nine tenths of it
REDACTED = b"[redacted]"

_PRIVATE = rb"[A-Z0-9 ]*PRIVATE KEY-----"
_OF_TOKENS = rb"[A-Za-z0-9_-]"
_SECRETS = (
    # Whole keys in PEM, also where JSON has written their line ends, or where a log has cut off what follows.
    (re.compile(rb"-----BEGIN %s.*?(?:-----END %s|\Z)" % (_PRIVATE, _PRIVATE), re.DOTALL), b""),
    # JSON Web Tokens, which service accounts have too. Each word is looked at once, however often it says `eyJ`.
    (re.compile(rb"(?<!%s)(?=%s*?eyJ%s{8})%s++\.%s{8,}+\.%s*+" % ((_OF_TOKENS,) * 6)), b""),
    (re.compile(rb"(?i)(authorization\\?[\"']?\s*[:=]\s*\\?[\"']?(?:bearer|basic)\s+)[A-Za-z0-9._~+/=-]+"), b"\\1"),
    (re.compile(rb"(?i)\b(bearer\s+)[A-Za-z0-9._~+/=-]{16,}"), b"\\1"),
    # Symmetric keys among JSON Web Keys.
    (re.compile(rb"(\\?\"k\\?\"\s*:\s*\\?\")[A-Za-z0-9_=-]{16,}"), b"\\1"),
)


class ReportArchive:
    """Use it as a context: with its end the archive is whole."""

    def __init__(self, file: IO[bytes], root: str) -> None:
        self._root = root
        self._archive = tarfile.open(fileobj=file, mode="w:gz", compresslevel=6)  # noqa: SIM115 - closed by `close`
        self._size = 0
        self.left_out: list[str] = []
        self.names: list[str] = []

    def add(self, name: str, data: bytes, *, tail: bool = False) -> None:
        """`tail`: of what is too long, the end is kept: logs."""
        data = without_secrets(data)
        if len(data) > MOST_FILE:
            note = f"[weft: {len(data) - MOST_FILE} bytes are left out here]\n".encode()
            data = note + data[-MOST_FILE:] if tail else data[:MOST_FILE] + note
        if kinds := kinds_of_keys(data):
            self.left_out.append(f"{name}: it would hold a private key ({', '.join(kinds)})")
            return
        if self._size + len(data) > MOST_TOTAL:
            self.left_out.append(f"{name}: the report is full")
            return
        self._write(name, data)

    def close(self) -> None:
        if self.left_out:
            self._write("left-out.txt", without_secrets("\n".join([*self.left_out, ""]).encode()))
        self._archive.close()

    def __enter__(self) -> ReportArchive:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _write(self, name: str, data: bytes) -> None:
        member = tarfile.TarInfo(f"{self._root}/{name}")
        member.size, member.mode, member.mtime = len(data), 0o600, int(time.time())
        self._archive.addfile(member, io.BytesIO(data))
        self._size += len(data)
        self.names.append(name)


def without_secrets(data: bytes) -> bytes:
    data = without_named_secrets(data)
    for pattern, kept in _SECRETS:
        data = pattern.sub(kept + REDACTED, data)
    return data
