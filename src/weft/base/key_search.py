"""Searches for private keys in places where there must be none: in files, command lines and environments.

Input: bytes. Output: the kinds of keys in them. Rule: a key is reported by place and kind; its content is never
shown.
"""

from __future__ import annotations

import base64
import os
import re
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

_P256, _P384 = "06082a8648ce3d030107", "06052b81040022"
_EC, _RSA = "06072a8648ce3d0201", "06092a864886f70d0101010500"
# The beginning of a key in DER, up to the secret itself (RFC 5208, 5915, 8017, 8410). A dot stands for one byte,
# usually of a length. The bytes after `!` must not follow: programs that write keys contain these templates without a
# key between them.
_DER = {
    "P-256": (f"3081.0201003013{_EC}{_P256}04.30.0201010420!a144034200", f"30770201010420{'.' * 32}a00a{_P256}"),
    "P-384": (f"3081.0201003010{_EC}{_P384}0481.3081.0201010430!a164036200", f"3081.0201010430{'.' * 48}a007{_P384}"),
    "Ed25519": ("302e020100300506032b657004220420",),
    "RSA": (f"3082..020100300d{_RSA}0482..3082..0201000282", "3082..0201000282..00"),
}
# A PEM header alone is no key, because programs that read keys contain it. A line break may be written as `\n`.
_PEM = rb"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----(?:\s|\\+[nr])+(?:Proc-Type:|[A-Za-z0-9+/]{16})"
_HEADERS = tuple(f"-----BEGIN {kind}PRIVATE KEY-----\n" for kind in ("", "EC ", "RSA ", "ENCRYPTED ", "OPENSSH "))


class Searched(msgspec.Struct, frozen=True):
    places: int
    found: tuple[str, ...]  # PLACE: KIND


def search(places: Iterable[tuple[str, bytes]]) -> Searched:
    """Search `places` for private keys; each place is a name and its bytes. Return the kinds of keys by place, and
    the number of places."""
    count, keys = 0, []
    for name, data in places:
        count += 1
        keys += [f"{name}: {kind}" for kind in kinds_of_keys(data)]
    return Searched(count, tuple(keys))


def kinds_of_keys(data: bytes) -> tuple[str, ...]:
    return tuple(dict.fromkeys(kind for kind, pattern in _PATTERNS if pattern.search(data)))


def files_below(*roots: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the path and content of every regular file in the directories `roots`, and of those roots that are
    files."""
    for root in roots:
        for path in sorted((root, *root.rglob("*"))):
            try:
                if stat.S_ISREG(path.lstat().st_mode):
                    yield os.fspath(path), path.read_bytes()
            except FileNotFoundError:  # the file was deleted in the meantime
                continue


def started_with(pids: Iterable[int]) -> Iterator[tuple[str, bytes]]:
    """Yield two places for `search` per process in `pids`, each as (name, bytes): its command line and its environment.
    Processes that have ended are skipped."""
    for pid in pids:
        for part in ("cmdline", "environ"):
            try:
                yield f"process {pid}'s {part}", Path(f"/proc/{pid}/{part}").read_bytes()
            except (FileNotFoundError, ProcessLookupError):
                continue


def _bytes(pattern: str) -> bytes:
    wanted, _, unwanted = pattern.partition("!")
    parts = re.findall(r"\.+|[0-9a-f]+", wanted)
    beginning = b"".join(b"." * len(part) if part[0] == "." else re.escape(bytes.fromhex(part)) for part in parts)
    return beginning + (b"(?!%s)" % re.escape(bytes.fromhex(unwanted)) if unwanted else b"")


def _encoded(header: str) -> bytes:
    """Return a regular expression for the base64 encoding of the PEM header `header`. The last characters of the
    encoding are left out, because they also encode the byte after the header."""
    return re.escape(base64.b64encode(header.encode())[: len(header) * 4 // 3])


_PATTERNS = (
    ("PEM", re.compile(_PEM)),
    ("PEM in base64", re.compile(b"|".join(_encoded(header) for header in _HEADERS))),
    *((f"{kind} in DER", re.compile(_bytes(each), re.DOTALL)) for kind, forms in _DER.items() for each in forms),
    # PKCS #8, the format of workload keys, without the PEM header.
    ("P-256 in base64", re.compile(rb"MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQg")),
)
