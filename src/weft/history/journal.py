"""Stores the history of a mesh in a file, for the next start of the control plane: every change, with the content of
the changed objects before and after. Input: the current objects. Output: the moments of earlier runs.

The journal is one file, readable only by its owner. It contains the moments of earlier runs, then all objects when this
run began, then one line per moment since then. It is rewritten, and bounded, at each start and when it has grown long.
Endpoints are not stored. Rule: whatever the file contains, and whether or not it can be written, the control plane
continues. A damaged file is moved aside, and its readable lines are used.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType

import msgspec

from weft.model.names import ObjectKey

log = logging.getLogger(__name__)

FILE = "history.jsonl"
MOMENTS = 1_000
EDITS = 2_000  # all edits are parsed when a control plane starts, in some tenths of a second
MOST_BYTES = 16 << 20  # bytes of moments; beyond it the file is rewritten with the newest half
MOST_OBJECT = 4 << 20  # characters of one object; of a longer one, only a digest is stored
DAMAGED = f"{FILE}.damaged"
LONGEST = 256 << 20  # the most bytes of a file that are read


class Said(msgspec.Struct, frozen=True):
    """The stored content of one object as JSON (`object_texts.py`), and the file and line from which the object was
    read."""

    said: str
    file: str = ""
    line: int = 0


class SaidEdit(msgspec.Struct, frozen=True):
    key: ObjectKey
    before: Said | None = None  # None: the object did not exist
    after: Said | None = None


class SaidMoment(msgspec.Struct, frozen=True, tag="moment"):
    number: int
    at: float
    digest: str
    edits: tuple[SaidEdit, ...]


class Beginning(msgspec.Struct, frozen=True, tag="beginning"):
    """A line of the journal with all objects that the mesh had when a control plane started, at the time `at`.
    `number`: the last moment before this start. `first`: the start of the earliest control plane whose moments the
    journal contains. `digest`: the digest of all objects before the first stored moment."""

    at: float
    number: int  # number of the last moment before the start
    objects: tuple[tuple[ObjectKey, Said], ...]
    first: float  # start time of the first control plane
    digest: str = ""  # digest of all objects before the first stored moment


Line = SaidMoment | Beginning


class Restored(msgspec.Struct, frozen=True):
    begun: float
    digest: str  # digest of all objects before the first moment
    moments: tuple[SaidMoment, ...] = ()  # oldest first


class Journal:
    def __init__(self, directory: Path) -> None:
        """`directory` must be accessible only to its owner."""
        self._path = directory / FILE
        self._file = -1
        self._size, self._limit = 0, MOST_BYTES

    def begin(self, now: Mapping[ObjectKey, Said], at: float, digest: str) -> Restored:
        """Return the moments of earlier runs, and start the journal of this run at the time `at` with the current
        objects `now`, whose digest is `digest`. If objects changed while no control plane was running, the last
        returned moment contains these changes. `add` may be called only after `begin`."""
        now = {key: _short(content) for key, content in now.items()}
        lines = _mended(self._read(), now, digest)
        before = _beginning(lines)
        if before is None:
            first = lines[0].at if lines else at
            before = Beginning(at, 0, (), first, "" if lines else digest)
        edits = tuple(_edits(_head(lines, now), now))
        if edits:
            lines.append(SaidMoment(_last(lines) + 1, at, digest, edits))
        return self._renew(lines, now, msgspec.structs.replace(before, at=at))

    def add(self, moment: SaidMoment) -> None:
        if self._file < 0:
            return
        edits = tuple(
            SaidEdit(edit.key, edit.before and _short(edit.before), edit.after and _short(edit.after))
            for edit in moment.edits
        )
        line = msgspec.json.encode(msgspec.structs.replace(moment, edits=edits)) + b"\n"
        try:
            if os.write(self._file, line) != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            log.warning("the history is no longer recorded: %s: %s", self._path, error.strerror)
            self.close()
            return
        self._size += len(line)
        if self._size > self._limit:
            lines = _mended(self._read(), {}, "")
            if (before := _beginning(lines)) is not None:
                self._renew(lines, _head(lines), before)

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _read(self) -> list[Line | None]:
        """Read the lines of the file; None stands for unreadable lines. A truncated last line, after a crash of the
        machine, does not count as damage."""
        lines: list[Line | None] = []
        bad, torn = 0, False
        try:
            if self._path.stat().st_size > LONGEST:
                self._keep_aside("the file is too long to be read, and the history starts anew")
                return []
            with self._path.open("rb") as file:
                for line in file:
                    try:
                        lines.append(_decoder.decode(line))
                    except (msgspec.MsgspecError, ValueError, RecursionError):
                        bad, torn = bad + 1, not line.endswith(b"\n")
                        if lines[-1:] != [None]:
                            lines.append(None)
        except FileNotFoundError:
            return []
        except OSError as error:
            self._keep_aside(f"the file cannot be read: {error.strerror}")
        if torn:
            log.warning("%s: the last line is incomplete and is ignored", self._path)
        if damaged := bad - torn:
            self._keep_aside(f"{damaged} line{'s' * (damaged != 1)} cannot be read; the rest is used")
        return lines

    def _keep_aside(self, why: str) -> None:
        """Rename the damaged file, so that it can be inspected, and log `why` it is damaged. An earlier damaged file
        is overwritten."""
        aside = self._path.with_name(DAMAGED)
        try:
            self._path.replace(aside)
        except OSError as error:
            log.warning("%s: %s; the file cannot be moved aside: %s", self._path, why, error.strerror)
        else:
            log.warning("%s: %s; the file is kept as %s", self._path, why, aside)

    def _renew(self, lines: list[Line], now: Mapping[ObjectKey, Said], before: Beginning) -> Restored:
        """Rewrite the file with as many of the newest moments as the limits allow, and return these moments. `lines`:
        the lines of the journal. `now`: the current objects. `before`: the last Beginning."""
        every = [line for line in lines if isinstance(line, SaidMoment)]
        newest = _bounded(every)
        left_out = every[: len(every) - len(newest)]
        digest = left_out[-1].digest if left_out else before.digest
        number = max(before.number, _last(lines))
        self._rewrite(
            [*newest, msgspec.structs.replace(before, number=number, objects=tuple(now.items()), digest=digest)]
        )
        return Restored(before.first, digest, tuple(newest))

    def _rewrite(self, lines: Iterable[Line]) -> None:
        self.close()
        encoded = [msgspec.json.encode(line) + b"\n" for line in lines]
        fresh = self._path.with_suffix(".new")
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
            self._file = os.open(fresh, flags, 0o600)
            with os.fdopen(os.dup(self._file), "wb") as file:
                file.writelines(encoded)
            fresh.replace(self._path)
            self._size = self._path.stat().st_size
            self._limit = MOST_BYTES + len(encoded[-1])  # plus the line with all current objects, however long
        except OSError as error:
            log.warning("the history is not recorded: %s: %s", self._path, error.strerror)
            self.close()


def _bounded(moments: list[SaidMoment]) -> list[SaidMoment]:
    newest: list[SaidMoment] = []
    edits = size = 0
    for moment in reversed(moments[-MOMENTS:]):
        edits += len(moment.edits)
        size += len(msgspec.json.encode(moment)) + 1
        if size > MOST_BYTES // 2 or (edits > EDITS and newest):
            break
        newest.append(moment)
    return newest[::-1]


def _short(content: Said) -> Said:
    if len(content.said) <= MOST_OBJECT:
        return content
    return msgspec.structs.replace(content, said=f'"sha256:{hashlib.sha256(content.said.encode()).hexdigest()}"')


def _mended(lines: list[Line | None], now: Mapping[ObjectKey, Said], digest: str) -> list[Line]:
    """Return the readable `lines`. Each run of unreadable lines (None) is replaced by one moment with the changes that
    it must have contained: the differences between the objects before it and the objects after it. A run without such
    differences, or at the beginning or end of the journal, is left out, and so is a moment whose number is not higher
    than all numbers before it. `now`: the current objects; `digest`: their digest. If the last moment in the journal
    has the same digest, `now` are also the objects after that moment, and are compared, too."""
    mended: list[Line] = []
    objects: dict[ObjectKey, Said | None] = {}
    whole = False  # whether `objects` contains all objects of the mesh
    for index, line in enumerate(lines):
        if line is None:
            number = _last(mended) + 1
            later = [each for each in lines[index + 1 :] if each is not None]
            if mended and later and min(each.number for each in later) >= number:
                last = now if digest and _digest(later) == digest else None
                edits = tuple(_lost(objects, later, last, whole=whole))
                if edits:
                    mended.append(SaidMoment(number, later[0].at, "", edits))
                    objects.update({edit.key: edit.after for edit in edits})
            continue
        if isinstance(line, Beginning):
            objects, whole = dict(line.objects), True
        elif line.number <= _last(mended):
            continue  # the line does not fit those before it
        else:
            objects.update({edit.key: edit.after for edit in line.edits})
        mended.append(line)
    return mended


def _lost(
    objects: Mapping[ObjectKey, Said | None], later: list[Line], now: Mapping[ObjectKey, Said] | None, *, whole: bool
) -> Iterable[SaidEdit]:
    expected: dict[ObjectKey, Said | None] = {}
    for line in later:
        if isinstance(line, Beginning):
            now = dict(line.objects)
            break
        for edit in line.edits:
            expected.setdefault(edit.key, edit.before)
    if now is not None:
        expected = {**{key: now.get(key) for key in {*objects, *(now if whole else ())}}, **expected}
    for key in sorted(expected):
        if key not in objects and not whole:
            continue
        was, is_ = objects.get(key), expected[key]
        if (was.said if was else None) != (is_.said if is_ else None):
            yield SaidEdit(key, was, is_)


def _digest(lines: list[Line]) -> str:
    """Return the digest of all objects after the last moment in `lines`; "" if there is no moment."""
    return next((line.digest for line in reversed(lines) if isinstance(line, SaidMoment)), "")


def _beginning(lines: list[Line]) -> Beginning | None:
    """Return the last Beginning in `lines`; None if there is none."""
    return next((line for line in reversed(lines) if isinstance(line, Beginning)), None)


def _last(lines: list[Line]) -> int:
    """Return the number of the last moment in `lines`; 0 if there is none."""
    return max((line.number for line in lines), default=0)


def _head(lines: list[Line], unknown: Mapping[ObjectKey, Said] = MappingProxyType({})) -> dict[ObjectKey, Said]:
    """Return the objects that the mesh had after the last of `lines`, by key. If the line with all objects at the start
    (a Beginning) is lost, `unknown` are taken as the objects at the start."""
    state = dict(unknown) if _beginning(lines) is None else {}
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
