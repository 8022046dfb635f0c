"""The archive of a bug report, which can be shared: keys, tokens and passwords are redacted from each file before it is
written. The size is bounded: a file that is too long loses its beginning or its end, and once the archive is full,
further files are only listed.

Rule: a file that still looks like a private key after redaction is not written.
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
MOST_TOTAL = 256 << 20  # before compression, which saves about 90 %
REDACTED = b"[redacted]"

_PRIVATE = rb"[A-Z0-9 ]*PRIVATE KEY-----"
_OF_TOKENS = rb"[A-Za-z0-9_-]"
_SECRETS = (
    # Whole PEM keys, also with the line ends escaped in JSON, or cut off at the end of a log.
    (re.compile(rb"-----BEGIN %s.*?(?:-----END %s|\Z)" % (_PRIVATE, _PRIVATE), re.DOTALL), b""),
    # JSON Web Tokens, also those of service accounts. The pattern scans each word once, however often the word contains
    # `eyJ`.
    (re.compile(rb"(?<!%s)(?=%s*?eyJ%s{8})%s++\.%s{8,}+\.%s*+" % ((_OF_TOKENS,) * 6)), b""),
    (re.compile(rb"(?i)(authorization\\?[\"']?\s*[:=]\s*\\?[\"']?(?:bearer|basic)\s+)[A-Za-z0-9._~+/=-]+"), b"\\1"),
    (re.compile(rb"(?i)\b(bearer\s+)[A-Za-z0-9._~+/=-]{16,}"), b"\\1"),
    # Symmetric keys in JSON Web Key sets.
    (re.compile(rb"(\\?\"k\\?\"\s*:\s*\\?\")[A-Za-z0-9_=-]{16,}"), b"\\1"),
)


class ReportArchive:
    """A context manager that writes redacted files to an archive. The archive is complete when the context ends."""

    def __init__(self, file: IO[bytes], root: str) -> None:
        self._root = root
        self._archive = tarfile.open(fileobj=file, mode="w:gz", compresslevel=6)  # noqa: SIM115 - closed by `close`
        self._size = 0
        self.left_out: list[str] = []
        self.names: list[str] = []

    def add(self, name: str, data: bytes, *, tail: bool = False) -> None:
        """Redact `data` and write it as `name`. If it is too long, its beginning is kept, or with `tail`, as for logs,
        its end."""
        data = without_secrets(data)
        if len(data) > MOST_FILE:
            note = f"[weft: {len(data) - MOST_FILE} bytes are left out here]\n".encode()
            data = note + data[-MOST_FILE:] if tail else data[:MOST_FILE] + note
        if kinds := kinds_of_keys(data):
            self.left_out.append(f"{name}: it contains a private key ({', '.join(kinds)})")
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
