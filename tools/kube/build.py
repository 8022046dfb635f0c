"""Builds the programs of a Kubernetes cluster from the Go module proxy, one after the other, into a cache outside
the checkout.

`python -m tools.kube.build` builds the missing programs. Tests call `ensure`. A program appears in the cache only
when it is complete. An interrupted build therefore continues with the next missing program, and a test that needs
two programs does not wait for all nine. Only one process builds at a time; others wait and show what that process is
building.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tools.kube import go, module

# In the order of the build: the programs that most tests need come first.
PROGRAMS = (
    "kube-apiserver",
    "etcd",
    "kubectl",
    "kube-controller-manager",
    "kube-scheduler",
    "kubelet",
    "kube-proxy",
    "coredns",
    "pause",
)

PAUSE = Path(__file__).parent / "pause" / "main.go"

Tell = Callable[[str], None]


class BuildFailed(Exception):
    """A program could not be built; the message names its log file."""


def cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "weft" / "kube" / module.KUBERNETES


def path(name: str) -> Path:
    """Return the path of a program in the cache. Programs that are not part of the Kubernetes release have their own
    version in the file name."""
    if name == "coredns":
        return cache() / f"coredns-{module.COREDNS}"
    if name == "pause":
        return cache() / f"pause-{hashlib.sha256(PAUSE.read_bytes()).hexdigest()[:12]}"
    return cache() / name


def missing(names: Iterable[str] = PROGRAMS) -> list[str]:
    return [name for name in names if not path(name).exists()]


def ensure(names: Iterable[str] = PROGRAMS, *, tell: Tell) -> None:
    """Build the missing programs among `names`, or wait for the process that builds them. Return when all are in the
    cache."""
    wanted = tuple(names)
    shown = ""
    while missing(wanted):
        with _lock() as ours:
            if ours:
                for name in missing(wanted):
                    _build(name, tell)
                return
        progress = _progress().read_text() if _progress().exists() else "another build"
        if progress != shown:
            tell(f"waiting for {', '.join(missing(wanted))}: {progress}")
            shown = progress
        time.sleep(1)


@contextmanager
def _lock() -> Iterator[bool]:
    """Yield whether this process has the build lock. The kernel releases the lock when the process ends for any
    reason."""
    cache().mkdir(parents=True, exist_ok=True)
    with (cache() / "build.lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True


def _build(name: str, tell: Tell) -> None:
    log = cache() / "build.log"
    say = f"building {name} ({PROGRAMS.index(name) + 1} of {len(PROGRAMS)}, log in {log})"
    _progress().write_text(say)
    tell(say)
    begun = time.monotonic()
    compiler = go.find(cache().parent, tell)
    directory, package, flags = _module_of(name, compiler)
    for left in cache().glob(f".{name}.*.part"):
        left.unlink()
    # The name contains the process id, because the compiler of a killed build may still be writing to its file.
    part = cache() / f".{name}.{os.getpid()}.part"
    command: list[Path | str] = [compiler, "build", "-trimpath", "-ldflags", flags, "-o", part, package]
    _run(command, directory, log, f"{name} could not be built")
    part.rename(path(name))
    tell(f"built {name} in {time.monotonic() - begun:.0f} s")


def _module_of(name: str, compiler: Path) -> tuple[Path, str, str]:
    """Return the directory of the Go module that builds a program (the compiler adds checksums there), the package,
    and the linker flags."""
    if name == "coredns":
        directory = cache() / "module" / f"coredns-{module.COREDNS}"
        _write(directory / "main.go", module.coredns_main())
        _write(directory / "go.mod", module.coredns())
        return directory, ".", "-s -w"
    if name == "pause":
        directory = cache() / "module" / "pause"
        _write(directory / "main.go", PAUSE.read_text())
        _write(directory / "go.mod", "module weft/pause\n\ngo 1.24.0\n")
        return directory, ".", "-s -w"
    directory = cache() / "module" / "kubernetes"
    command: list[Path | str] = [compiler, "mod", "download", "-json", f"k8s.io/kubernetes@{module.KUBERNETES}"]
    output = _run(command, cache(), cache() / "build.log", "Kubernetes' source could not be fetched")
    _write(directory / "go.mod", module.kubernetes(Path(json.loads(output)["GoMod"]).read_text()))
    if name == "etcd":
        return directory, module.ETCD_PACKAGE, "-s -w"
    return directory, f"k8s.io/kubernetes/cmd/{name}", module.version_flags()


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def _run(command: list[Path | str], directory: Path, log: Path, failure: str) -> str:
    environment = {
        **os.environ,
        "CGO_ENABLED": "0",
        "GOFLAGS": "-mod=mod -buildvcs=false",
        "GOWORK": "off",
    }
    with log.open("a") as file:
        print(f"$ {' '.join(str(word) for word in command)}", file=file, flush=True)
        done = subprocess.run(
            command, cwd=directory, env=environment, stdout=subprocess.PIPE, stderr=file, text=True, check=False
        )
    if done.returncode:
        raise BuildFailed(f"{failure}; the last lines of {log}:\n{_tail(log)}")
    return done.stdout


def _tail(file: Path) -> str:
    return "\n".join(file.read_text(errors="replace").splitlines()[-15:])


def _progress() -> Path:
    return cache() / "progress"


def main() -> int:
    # With SIGTERM, exit through an exception, so that the compiler is ended, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        ensure(sys.argv[1:] or PROGRAMS, tell=lambda line: print(line, flush=True))
    except (BuildFailed, go.NoGo) as failed:
        print(failed, file=sys.stderr)
        return 1
    print(f"Kubernetes {module.KUBERNETES} is in {cache()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
