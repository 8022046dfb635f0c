"""Builds Helm from the Go module proxy into the cache outside the checkout, for tests that compare the output of the
chart with that of `weft install`. `ensure` builds Helm if it is missing; a first build takes some minutes."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from tools.kube import build, go

VERSION = "v3.19.2"
PACKAGE = "helm.sh/helm/v3"
_MODULE = f"module weft/helm\n\ngo 1.24.0\n\ntool {PACKAGE}/cmd/helm\n\nrequire {PACKAGE} {VERSION}\n"


def path() -> Path:
    return build.cache().parent / f"helm-{VERSION}"


def ensure(*, tell: Callable[[str], None]) -> None:
    if path().exists():
        return
    directory = build.cache().parent / "module" / f"helm-{VERSION}"
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "go.mod").write_text(_MODULE)
    part = path().with_name(f".{path().name}.{os.getpid()}.part")
    begun = time.monotonic()
    tell(f"building helm {VERSION}")
    environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=mod -buildvcs=false", "GOWORK": "off"}
    command: list[Path | str] = [go.find(build.cache().parent, tell), "build", "-trimpath", "-ldflags", "-s -w"]
    command += ["-o", part, f"{PACKAGE}/cmd/helm"]
    done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise build.BuildFailed(f"helm could not be built:\n{done.stderr[-2000:]}")
    part.rename(path())
    tell(f"built helm in {time.monotonic() - begun:.0f} s")
