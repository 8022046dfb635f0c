"""Decides which files of a mesh's directory are not read: patterns from the file `.weftignore` at the top of the
directory, in the syntax of `.gitignore`.

A pattern with a slash at its beginning or in its middle is relative to the directory; any other pattern matches a name
at every level. A slash at the end matches only directories. `*`, `?` and `[…]` match within a name, `**` any number of
directories. `!` includes again what an earlier pattern excludes, but not what is inside an excluded directory.
"""

from __future__ import annotations

from fnmatch import fnmatchcase

import msgspec

NAME = ".weftignore"
MOST_PATTERNS = 1_000
_ANY = "**"


class _Pattern(msgspec.Struct, frozen=True):
    names: tuple[str, ...]  # a pattern for each name of a path, or `**`
    excludes: bool
    only_directories: bool


class IgnoreList(msgspec.Struct, frozen=True):
    patterns: tuple[_Pattern, ...] = ()

    def excludes(self, path: str, *, directory: bool) -> bool:
        """Return whether a file or directory is not read. `path` is relative to the mesh's directory. The last pattern
        that matches decides."""
        names = path.split("/")
        for pattern in reversed(self.patterns):
            if (directory or not pattern.only_directories) and _matches(pattern.names, names):
                return pattern.excludes
        return False


def parse(text: str) -> IgnoreList:
    """Parse the content of a `.weftignore`. If there are more than MOST_PATTERNS patterns, only the first MOST_PATTERNS
    count."""
    lines = [line.rstrip() for line in text.splitlines()]
    patterns = map(_pattern, (line for line in lines if line and not line.startswith("#")))
    return IgnoreList(tuple(pattern for pattern in patterns if pattern.names)[:MOST_PATTERNS])


def _pattern(line: str) -> _Pattern:
    excludes, line = not line.startswith("!"), line.removeprefix("!").removeprefix("\\")
    only_directories, line = line.endswith("/"), line.rstrip("/")
    names = tuple(name for name in line.split("/") if name)
    return _Pattern(names if "/" in line or not names else (_ANY, *names), excludes, only_directories)


def _matches(pattern: tuple[str, ...], names: list[str]) -> bool:
    """Return whether a pattern matches a whole path. The positions in the pattern that the names so far can have
    reached are tracked as a set, so the time does not grow with the number of `**`."""
    last = len(pattern) - 1
    positions = {0}
    for name in names:
        following: set[int] = set()
        for start in positions:
            position = start
            while position <= last and pattern[position] == _ANY:
                following.update((position,) if position < last else (position, position + 1))
                position += 1
            if position <= last and fnmatchcase(name, pattern[position]):
                following.add(position + 1)
        positions = following
    return len(pattern) in positions
