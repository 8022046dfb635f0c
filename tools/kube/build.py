"""Builds the programs of a Kubernetes cluster from the Go module proxy, one by one, into a cache outside the checkout.

`python -m tools.kube.build` builds what is missing. Tests call `ensure`. A program appears in the cache under its name
only when it is whole, so an interrupted build goes on where it was, and who needs two programs need not wait for eight.
One builds at a time; others wait and tell what it is doing.
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

# What most tests wait for comes first.
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
    """A program could not be built; the message says where its log is."""


def cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "weft" / "kube" / module.KUBERNETES


def path(name: str) -> Path:
    """Where a program is, once it is built. What does not change with Kubernetes' release has its own in its name."""
    if name == "coredns":
        return cache() / f"coredns-{module.COREDNS}"
    if name == "pause":
        return cache() / f"pause-{hashlib.sha256(PAUSE.read_bytes()).hexdigest()[:12]}"
    return cache() / name


def missing(names: Iterable[str] = PROGRAMS) -> list[str]:
    return [name for name in names if not path(name).exists()]


def ensure(names: Iterable[str] = PROGRAMS, *, tell: Tell) -> None:
    """Returns when all these programs are in the cache: builds them, or waits for who is building them."""
    wanted = tuple(names)
    told = ""
    while missing(wanted):
        with _lock() as ours:
            if ours:
                for name in missing(wanted):
                    _build(name, tell)
                return
        now = _progress().read_text() if _progress().exists() else "another build"
        if now != told:
            tell(f"waiting for {', '.join(missing(wanted))}: {now}")
            told = now
        time.sleep(1)


@contextmanager
def _lock() -> Iterator[bool]:
    """Whether the one lock is ours. It ends with its process, however that ends."""
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
    # A compiler that outlived its killed builder may still write to the part it was given.
    part = cache() / f".{name}.{os.getpid()}.part"
    command: list[Path | str] = [compiler, "build", "-trimpath", "-ldflags", flags, "-o", part, package]
    _run(command, directory, log, f"{name} could not be built")
    part.rename(path(name))
    tell(f"built {name} in {time.monotonic() - begun:.0f} s")


def _module_of(name: str, compiler: Path) -> tuple[Path, str, str]:
    """The module that builds a program, where the compiler can add its sums; the package; the linker's flags."""
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
    said = _run(command, cache(), cache() / "build.log", "Kubernetes' source could not be fetched")
    _write(directory / "go.mod", module.kubernetes(Path(json.loads(said)["GoMod"]).read_text()))
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
    # Ended politely, it takes the compiler with it.
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
