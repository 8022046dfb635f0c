"""A patch of a large resource body: ranges of a base body that the receiver has, and new bytes between them.

A port's route configuration is joined from one part per host. Usually one host of a thousand has changed, or ten hosts
differ between namespaces. Whole parts are compared, never single bytes.
"""

from __future__ import annotations

from functools import lru_cache

import msgspec

Piece = bytes | tuple[int, int]  # new bytes, or start and end of a range of the base


class Mismatch(ValueError):
    """The patch does not fit the base body."""


class Patch(msgspec.Struct, frozen=True, array_like=True):
    base: str  # version of the body that the patch applies to
    size: int  # bytes of the result
    pieces: tuple[Piece, ...]

    @property
    def weight(self) -> int:
        return sum(len(piece) if isinstance(piece, bytes) else 8 for piece in self.pieces)


@lru_cache(maxsize=64)  # many nodes need the same patch
def difference(version: str, base: tuple[bytes, ...], parts: tuple[bytes, ...]) -> Patch:
    """Return the patch that makes the body `parts` out of the body `base`. Both bodies are given as the parts that they
    are joined from. `version`: the version of `base`."""
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
    """Apply a patch to a base body and return the result. Raises Mismatch if the patch does not fit."""
    body = b"".join(piece if isinstance(piece, bytes) else base[piece[0] : piece[1]] for piece in patch.pieces)
    if len(body) != patch.size:
        raise Mismatch(f"the patch resulted in {len(body)} bytes, expected {patch.size}")
    return body
