"""Builds the real istioctl from the Go module proxy into the cache outside the checkout. Tests use it to check that
weft's proxies and control plane work with istioctl. `ensure` builds it if it is missing; `python -m
tools.istioctl` does so from a shell."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from tools.go_program import compile_program

from tools.kube import build, go

# Istio's releases have no version that Go can resolve, so this is a pseudo-version: a commit of the release branch that
# the module proxy has. The proxy lacks some library versions that this commit requires; `LIBRARIES` replaces them by
# later versions.
RELEASE = "1.31"
VERSION = "v0.0.0-20260827124520-eed52ebb66ad"
PACKAGE = "istio.io/istio"
LIBRARIES = {
    "istio.io/api": "v1.31.1",
    "istio.io/client-go": "v1.31.1",
    "github.com/envoyproxy/go-control-plane/envoy": "v1.37.1-0.20260729145720-a2d8c7492908",
    "github.com/envoyproxy/go-control-plane/contrib": "v1.36.1-0.20260729145720-a2d8c7492908",
}


def path() -> Path:
    return build.cache().parent / f"istioctl-{RELEASE}-{VERSION.rpartition('-')[2]}"


def ensure(*, tell: Callable[[str], None]) -> None:
    if not path().exists():
        flags = f"-X {PACKAGE}/pkg/version.buildVersion={RELEASE}"
        compile_package(f"{PACKAGE}/istioctl/cmd/istioctl", path(), flags=flags, tell=tell)


def compile_package(package: str, target: Path, *, flags: str = "", tell: Callable[[str], None]) -> None:
    """Build a program of Istio from its Go package. `target` appears only when the build is complete."""
    name = f"{package.removeprefix(f'{PACKAGE}/')} of Istio {RELEASE}"
    compile_program(package, target, name=name, module=_module(), flags=flags, tell=tell)


def _module() -> str:
    replaced = "".join(f"\t{name} => {name} {version}\n" for name, version in LIBRARIES.items())
    tool = f"{PACKAGE}/istioctl/cmd/istioctl"
    return (
        f"module weft/istioctl\n\ngo 1.26.0\n\ntool {tool}\n\nrequire {PACKAGE} {VERSION}\n\nreplace (\n{replaced})\n"
    )


def main() -> int:
    try:
        ensure(tell=lambda line: print(line, flush=True))
    except (build.BuildFailed, go.NoGo) as failed:
        print(failed, file=sys.stderr)
        return 1
    print(f"istioctl {RELEASE} is {path()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
