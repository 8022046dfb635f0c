"""Searches for private keys where none may be: in files, command lines and environments.

Input: bytes. Output: the kinds of keys in them. Rule: a key is reported by place and kind, never shown.
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
# How a key begins in DER, up to the secret itself (RFC 5208, 5915, 8017, 8410). A dot is one byte, mostly of a
# length. What follows `!` is not secret: programs that write keys contain the text before and after it side by side.
_DER = {
    "P-256": (f"3081.0201003013{_EC}{_P256}04.30.0201010420!a144034200", f"30770201010420{'.' * 32}a00a{_P256}"),
    "P-384": (f"3081.0201003010{_EC}{_P384}0481.3081.0201010430!a164036200", f"3081.0201010430{'.' * 48}a007{_P384}"),
    "Ed25519": ("302e020100300506032b657004220420",),
    "RSA": (f"3082..020100300d{_RSA}0482..3082..0201000282", "3082..0201000282..00"),
}
# A header alone is no key: programs that read keys have it among their words. A line's end may be written as `\n`.
_PEM = rb"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----(?:\s|\\+[nr])+(?:Proc-Type:|[A-Za-z0-9+/]{16})"
_HEADERS = tuple(f"-----BEGIN {kind}PRIVATE KEY-----\n" for kind in ("", "EC ", "RSA ", "ENCRYPTED ", "OPENSSH "))


class Searched(msgspec.Struct, frozen=True):
    places: int
    found: tuple[str, ...]  # PLACE: KIND


def search(places: Iterable[tuple[str, bytes]]) -> Searched:
    """Each place is a name and its bytes."""
    count, found = 0, []
    for name, data in places:
        count += 1
        found += [f"{name}: {kind}" for kind in kinds_of_keys(data)]
    return Searched(count, tuple(found))


def kinds_of_keys(data: bytes) -> tuple[str, ...]:
    return tuple(dict.fromkeys(kind for kind, pattern in _PATTERNS if pattern.search(data)))


def files_below(*roots: Path) -> Iterator[tuple[str, bytes]]:
    """Every plain file of these directories, and those of the roots that are files themselves."""
    for root in roots:
        for path in sorted((root, *root.rglob("*"))):
            try:
                if stat.S_ISREG(path.lstat().st_mode):
                    yield os.fspath(path), path.read_bytes()
            except FileNotFoundError:  # a socket's or a pod's that has just gone
                continue


def started_with(pids: Iterable[int]) -> Iterator[tuple[str, bytes]]:
    """The command lines and environments of processes; those that have ended are skipped."""
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
    """A header in base64, without the characters that depend on the byte after it."""
    return re.escape(base64.b64encode(header.encode())[: len(header) * 4 // 3])


_PATTERNS = (
    ("PEM", re.compile(_PEM)),
    ("PEM in base64", re.compile(b"|".join(_encoded(header) for header in _HEADERS))),
    *((f"{kind} in DER", re.compile(_bytes(each), re.DOTALL)) for kind, forms in _DER.items() for each in forms),
    # PKCS #8, as workloads have it, without the header of PEM.
    ("P-256 in base64", re.compile(rb"MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQg")),
)
