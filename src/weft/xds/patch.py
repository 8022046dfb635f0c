"""A large body as what differs from one that the other side has: stretches of that, and bytes in between.

A port's routes are joined out of a part per host, and of a thousand hosts one changes, or ten look different from
another namespace. Whole parts are compared, never bytes.
"""

from __future__ import annotations

from functools import lru_cache

import msgspec

Piece = bytes | tuple[int, int]  # bytes, or where a stretch of the base begins and ends


class Mismatch(ValueError):
    """The patch does not fit what it is said to be for."""


class Patch(msgspec.Struct, frozen=True, array_like=True):
    base: str  # version of the body that it is for
    size: int  # of what comes out
    pieces: tuple[Piece, ...]

    @property
    def weight(self) -> int:
        return sum(len(piece) if isinstance(piece, bytes) else 8 for piece in self.pieces)


@lru_cache(maxsize=64)  # many nodes go the same way
def difference(version: str, base: tuple[bytes, ...], parts: tuple[bytes, ...]) -> Patch:
    """How `parts` follow from the base of this version."""
    places: dict[bytes, tuple[int, int]] = {}
    at = 0
    for part in base:
        places[part] = at, at + len(part)
        at += len(part)
    pieces: list[Piece] = []
    news: list[bytes] = []
    size = 0
    for part in parts:
        size += len(part)
        place = places.get(part)
        if place is None:
            news.append(part)
            continue
        if news:
            pieces.append(b"".join(news))
            news = []
        last = pieces[-1] if pieces else b""
        if isinstance(last, tuple) and last[1] == place[0]:
            pieces[-1] = last[0], place[1]
        else:
            pieces.append(place)
    if news:
        pieces.append(b"".join(news))
    return Patch(version, size, tuple(pieces))


def patched(base: bytes, patch: Patch) -> bytes:
    """Raises Mismatch."""
    body = b"".join(piece if isinstance(piece, bytes) else base[piece[0] : piece[1]] for piece in patch.pieces)
    if len(body) != patch.size:
        raise Mismatch(f"{len(body)} bytes came out, and {patch.size} were meant")
    return body
