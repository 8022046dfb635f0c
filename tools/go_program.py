"""Builds a program from the Go module proxy into the cache outside the checkout."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from tools.kube import build, go


def compile_program(
    package: str, target: Path, *, name: str, module: str, flags: str = "", tell: Callable[[str], None]
) -> None:
    """Build the program of a Go package. `target` appears only when the build is complete. `name`: what is built, for
    messages. `module`: the text of a go.mod that requires the package's module. `flags`: more flags of the linker."""
    directory = build.cache().parent / "module" / target.name
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "go.mod").write_text(module)
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    begun = time.monotonic()
    tell(f"building {name}")
    # A program may require a newer Go than Kubernetes. With GOTOOLCHAIN=auto, any installed Go downloads the required
    # version.
    newer = {"GOTOOLCHAIN": "auto", "GOWORK": "off", "GOFLAGS": "-mod=mod -buildvcs=false", "CGO_ENABLED": "0"}
    command: list[Path | str] = ["nice", "-n", "19", go.find(build.cache().parent, tell), "build", "-trimpath"]
    command += ["-ldflags", f"-s -w {flags}".strip(), "-o", part, package]
    done = subprocess.run(
        command, cwd=directory, env={**os.environ, **newer}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise build.BuildFailed(f"{name} could not be built:\n{done.stderr[-2000:]}")
    part.rename(target)
    tell(f"built {name} in {time.monotonic() - begun:.0f} s")
