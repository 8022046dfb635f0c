"""The past of a mesh, written down, for a control plane that is started again: each change, with what each object said
before and after it. What is said now comes in; the moments of earlier runs leave.

One file, for its owner alone: the moments of earlier runs, then what was said when this one began, then a line for each
moment since. It is written anew, and bounded, at each start and when it has grown long. Who answered then is not kept.
Rule: whatever the file holds, and whether or not it can be written, the control plane goes on.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from weft.model.names import ObjectKey

log = logging.getLogger(__name__)

FILE = "history.jsonl"
MOMENTS = 1_000
EDITS = 2_000  # all of them are read when a control plane starts, in some tenths of a second
MOST_BYTES = 16 << 20  # of the file, before it is written anew; unless what is said now is most of it
LONGEST = 256 << 20  # bytes of a file that is read


class Said(msgspec.Struct, frozen=True):
    """What an object said, as JSON (`contents.py`), and where it was written."""

    said: str
    file: str = ""
    line: int = 0


class SaidEdit(msgspec.Struct, frozen=True):
    key: ObjectKey
    before: Said | None = None  # None: it was not there
    after: Said | None = None


class SaidMoment(msgspec.Struct, frozen=True, tag="moment"):
    number: int
    at: float
    digest: str
    edits: tuple[SaidEdit, ...]


class Beginning(msgspec.Struct, frozen=True, tag="beginning"):
    """Everything that was said when a control plane began."""

    at: float
    number: int  # of the last moment before it
    objects: tuple[tuple[ObjectKey, Said], ...]
    first: float  # when the first of all began
    digest: str = ""  # of what was said before all the moments that are kept


Line = SaidMoment | Beginning


class Restored(msgspec.Struct, frozen=True):
    begun: float
    digest: str  # before all the moments
    moments: tuple[SaidMoment, ...] = ()  # oldest first


class Journal:
    def __init__(self, directory: Path) -> None:
        """`directory` is a private one."""
        self._path = directory / FILE
        self._file = -1
        self._size, self._limit = 0, MOST_BYTES

    def begin(self, now: Mapping[ObjectKey, Said], at: float, digest: str) -> Restored:
        """What is remembered, and, as its last moment, what has changed while nobody looked. From here on `add`."""
        lines = self._read()
        before = _beginning(lines)
        if before is None:
            return self._renew([], now, Beginning(at, 0, (), at, digest))
        edits = tuple(_edits(_head(lines), now))
        if edits:
            lines.append(SaidMoment(_last(lines) + 1, at, digest, edits))
        return self._renew(lines, now, msgspec.structs.replace(before, at=at))

    def add(self, moment: SaidMoment) -> None:
        if self._file < 0:
            return
        line = msgspec.json.encode(moment) + b"\n"
        try:
            if os.write(self._file, line) != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            log.warning("the history is no longer written down: %s: %s", self._path, error.strerror)
            self.close()
            return
        self._size += len(line)
        if self._size > self._limit:
            lines = self._read()
            if (before := _beginning(lines)) is not None:
                self._renew(lines, _head(lines), before)

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _read(self) -> list[Line]:
        """A line that is broken, as the last one may be if the machine went down, ends what can be believed."""
        found: list[Line] = []
        try:
            if self._path.stat().st_size > LONGEST:
                log.warning("%s is too long to be read: the history begins anew", self._path)
                return []
            with self._path.open("rb") as file:
                for line in file:
                    found.append(_decoder.decode(line))
        except FileNotFoundError:
            return []
        except (OSError, msgspec.DecodeError) as error:
            log.warning("%s: line %d cannot be read, nor what follows it: %s", self._path, len(found) + 1, error)
        return found

    def _renew(self, lines: list[Line], now: Mapping[ObjectKey, Said], before: Beginning) -> Restored:
        """Write it anew, with as much of the past as there is room for."""
        every = [line for line in lines if isinstance(line, SaidMoment)]
        kept = _bounded(every)
        left_out = every[: len(every) - len(kept)]
        digest = left_out[-1].digest if left_out else before.digest
        number = max(before.number, _last(lines))
        self._rewrite(
            [*kept, msgspec.structs.replace(before, number=number, objects=tuple(now.items()), digest=digest)]
        )
        return Restored(before.first, digest, tuple(kept))

    def _rewrite(self, lines: Iterable[Line]) -> None:
        self.close()
        fresh = self._path.with_suffix(".new")
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
            self._file = os.open(fresh, flags, 0o600)
            with os.fdopen(os.dup(self._file), "wb") as file:
                file.writelines(msgspec.json.encode(line) + b"\n" for line in lines)
            fresh.replace(self._path)
            self._size = self._path.stat().st_size
            self._limit = max(MOST_BYTES, 2 * self._size)
        except OSError as error:
            log.warning("the history is not written down: %s: %s", self._path, error.strerror)
            self.close()


def _bounded(moments: list[SaidMoment]) -> list[SaidMoment]:
    kept: list[SaidMoment] = []
    edits = 0
    for moment in reversed(moments[-MOMENTS:]):
        edits += len(moment.edits)
        if edits > EDITS and kept:
            break
        kept.append(moment)
    return kept[::-1]


def _beginning(lines: list[Line]) -> Beginning | None:
    """The last."""
    return next((line for line in reversed(lines) if isinstance(line, Beginning)), None)


def _last(lines: list[Line]) -> int:
    """The number of the last moment."""
    return max((line.number for line in lines), default=0)


def _head(lines: list[Line]) -> dict[ObjectKey, Said]:
    """What was said last."""
    state: dict[ObjectKey, Said] = {}
    for line in lines:
        if isinstance(line, Beginning):
            state = dict(line.objects)
            continue
        for edit in line.edits:
            if edit.after is None:
                state.pop(edit.key, None)
            else:
                state[edit.key] = edit.after
    return state


def _edits(before: Mapping[ObjectKey, Said], after: Mapping[ObjectKey, Said]) -> Iterable[SaidEdit]:
    for key in sorted({*before, *after}):
        was, is_ = before.get(key), after.get(key)
        if (was.said if was else None) != (is_.said if is_ else None):
            yield SaidEdit(key, was, is_)


_decoder = msgspec.json.Decoder(SaidMoment | Beginning)
