"""Reads meshes from the files and directories of a command line: their documents, and the problems of the files. Each
directory is one mesh. All single files and standard input together are another mesh."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from weft.cli.print.output import fail, say

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from weft.api.document import Document
    from weft.base.problem import Problem
    from weft.files.directory import Content
    from weft.model.value import Value

_STDIN = ("-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0")


def meshes_in(paths: Sequence[Path]) -> Iterator[tuple[list[Document], list[Problem], bool]]:
    """Yield a tuple for every mesh in `paths`: its documents, the problems of its files, and whether the mesh is
    certainly complete. The mesh of a directory is complete; single files may be a part of a mesh."""
    import msgspec

    from weft.files.directory import Directory

    files: dict[str, Content] = {}
    for path in paths:
        if str(path) in _STDIN:
            files["stdin"] = _standard_input()
        elif path.is_dir():
            yield _of_directory(path)
        else:
            shown, content = _of_file(path)
            files[shown] = content
    if files:
        together = Directory()
        together.apply(files)
        here = [
            msgspec.structs.replace(document, directory=str(Path(document.file).absolute().parent))
            for document in together.live.values()
        ]
        yield here, list(together.problems()), False


def _of_directory(path: Path) -> tuple[list[Document], list[Problem], bool]:
    from weft.files import scan
    from weft.files.directory import Directory

    shown, root = scan.shown(path), str(path.absolute())
    try:
        seen = scan.look(root, shown)
    except OSError as error:
        fail(f"{shown} cannot be read: {error.strerror or error}", f"try: ls -ld {shown}")
    directory = Directory(root, shown)
    directory.apply({name: scan.read(root, name, shown) for name in seen.files})
    return list(directory.live.values()), [*scan.problems_of(seen), *directory.problems()], True


def _of_file(path: Path) -> tuple[str, Content]:
    from weft.files import scan
    from weft.files.documents import MOST_BYTES

    shown = scan.shown(path)
    if not path.exists():
        fail(f"{shown} does not exist", "give a file, a directory, or - for standard input")
    if path.is_file():
        return shown, scan.read(str(path.absolute().parent), path.name, scan.shown(path.parent))
    with path.open("rb") as pipe:  # a pipe, such as a shell's <(…)
        return shown, pipe.read(MOST_BYTES + 1)


def _standard_input() -> bytes:
    from weft.files.documents import MOST_BYTES

    if sys.stdin.isatty():
        say("reading standard input; end it with Ctrl-D")
    return sys.stdin.buffer.read(MOST_BYTES + 1)


class FileAdmission:
    """Assigns virtual addresses to services that are read from files, as a running mesh does. The checks need these
    addresses: without an address, some services would occupy their port on all addresses."""

    def __init__(self) -> None:
        from weft.local.addresses import Addresses

        self._addresses = Addresses()

    def __call__(self, value: Value) -> Value:
        from weft.local.error import LocalError

        try:
            return self._addresses.admit(value)
        except LocalError:  # more services than a machine has addresses for
            return value
