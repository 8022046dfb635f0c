"""Finds a Go toolchain that can build Kubernetes: the one on PATH if it is new enough, otherwise one from the module
proxy.

The module proxy serves Go as a module (`golang.org/toolchain`). The download must match a pinned checksum, which is
the one in Go's checksum database.
"""

from __future__ import annotations

import base64
import hashlib
import os
import platform
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable
from pathlib import Path

NEEDED = (1, 24)
RELEASE = "go1.24.13"
SUMS = {"amd64": "h1:5sgfUhn9QCgVl4UYj32GrIYFHI3bi2UX55tNfupXwxc="}


class NoGo(Exception):
    """There is no sufficiently new Go on this machine, and none could be downloaded."""


def find(cache: Path, tell: Callable[[str], None]) -> Path:
    """Return the path of the `go` program to build with. A downloaded one is stored in `cache`."""
    installed = shutil.which("go")
    if installed and _version(Path(installed)) >= NEEDED:
        return Path(installed)
    fetched = cache / RELEASE / "bin" / "go"
    if not fetched.exists():
        _fetch(cache / RELEASE, tell)
    return fetched


def proxies() -> list[str]:
    """Return the Go module proxies to try, in order: from $GOPROXY, or from the configuration of an installed Go of
    any version."""
    configured = os.environ.get("GOPROXY") or _configured("GOPROXY")
    return [each.rstrip("/") for each in re.split(r"[,|]", configured) if each.startswith(("http://", "https://"))]


def sum_of(archive: zipfile.ZipFile) -> str:
    """Return the checksum of a module as in Go's checksum database: the hash of the sorted list of the hashes of its
    files."""
    lines = []
    for name in sorted(archive.namelist()):
        lines.append(f"{hashlib.sha256(archive.read(name)).hexdigest()}  {name}\n")
    return "h1:" + base64.b64encode(hashlib.sha256("".join(lines).encode()).digest()).decode()


def _version(go: Path) -> tuple[int, int]:
    match = re.match(r"go(\d+)\.(\d+)", _go_env(go, "GOVERSION"))
    return (int(match[1]), int(match[2])) if match else (0, 0)


def _configured(name: str) -> str:
    go = shutil.which("go")
    return _go_env(Path(go), name) if go else ""


def _go_env(go: Path, name: str) -> str:
    return subprocess.run([go, "env", name], capture_output=True, text=True, check=False, cwd="/").stdout.strip()


def _fetch(target: Path, tell: Callable[[str], None]) -> None:
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    if sys.platform != "linux" or machine not in SUMS:
        raise NoGo(f"no Go of at least {NEEDED[0]}.{NEEDED[1]} on PATH; install one from https://go.dev/dl")
    name = f"v0.0.1-{RELEASE}.linux-{machine}"
    reasons = []
    for proxy in proxies():
        address = f"{proxy}/golang.org/toolchain/@v/{name}.zip"
        tell(f"fetching {RELEASE} from {proxy}")
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".go-") as directory:
            package = Path(directory) / "go.zip"
            try:
                with urllib.request.urlopen(address, timeout=60) as answer, package.open("wb") as file:
                    shutil.copyfileobj(answer, file)
            except (urllib.error.URLError, OSError) as failed:
                reasons.append(f"{address}: {failed}")
                continue
            with zipfile.ZipFile(package) as archive:
                if sum_of(archive) != SUMS[machine]:
                    raise NoGo(f"{address} is not {RELEASE}: its sum is {sum_of(archive)}, not {SUMS[machine]}")
                archive.extractall(directory)
            unpacked = Path(directory) / f"golang.org/toolchain@{name}"
            # The zip of a module has no file modes.
            for program in [*(unpacked / "bin").iterdir(), *(unpacked / "pkg" / "tool").rglob("*")]:
                program.chmod(program.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
            unpacked.rename(target)
            return
    why = "; ".join(reasons) or "GOPROXY contains no module proxy"
    raise NoGo(f"could not fetch {RELEASE}: {why}; install a Go (apt-get install golang-go)")
