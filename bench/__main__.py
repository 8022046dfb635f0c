"""`python -m bench [--kubernetes] [NAME ...]`: run all rigs or the named ones, print a table of the figures, write
them to a file.

The results go to results/latest.json, or to results/kube.json with `--kubernetes`, but only if all rigs ran at full
length and none failed. The results of other runs are only printed, unless `--output` names a file.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import signal
import sys
import time
from pathlib import Path

from rich.console import Console

from bench.figure import KUBERNETES_RESULTS, RESULTS, Effort, Figure, show, write
from bench.process import Failed
from weft.envoy.binary import EnvoyError
from weft.kube.error import KubeError

# A run uses this order: the data path is measured first, before other rigs have heated the CPU.
RIGS = {
    "data-path": "latency and CPU per request through both sidecars, next to bare Envoys and a direct connection",
    "plain-proxies": "requests per core through one sidecar and through both, next to nginx, HAProxy and a bare Envoy",
    "amplification": "requests that a failing backend receives per client request, across three hops",
    "handshakes": "CPU per TLS handshake, full and resumed, for a sidecar and for a bare Envoy",
    "cold-start": "namespace created → Envoy has its config → first intercepted request answered",
    "saves": "file saved → every Envoy has ACKed the change, for 20 pods",
    "dns-flood": "name lookups of one pod beside a pod that sends ten thousand queries per second",
    "memory": "memory per sidecar in the demo",
    "signing": "certificates that the CA signs per second and core",
    "explain": "hypothetical requests that `weft explain` explains per second and core",
    "analyze": "`weft analyze` on ten thousand objects: reading the YAML, running all checks",
    "answers": "wall-clock and CPU time of each `weft` command, on the example shop",
    "scope": "a workload that calls five of up to 5,000 services: default config and config of all services",
    "control-plane": "control plane with a thousand proxies: first push, one changed route, one changed endpoint",
}

KUBERNETES_RIGS = {
    "kube-start": "pod created → Ready, for injected and plain pods",
    "kube-endpoints": "pod Ready → every Envoy that may call the pod has its endpoint",
    "kube-admission": "duration of the injection webhook, alone and as part of a pod's creation",
    "kube-control": "control plane of a cluster of 1,000 services: start, first sync, one change, memory",
}
_ALONE = {"kube-control"}  # rigs that start an API server of their own and need no cluster
_EXPECTED = (Failed, OSError, KubeError, EnvoyError)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        epilog="\n".join(f"  {name:14} {what}" for name, what in (RIGS | KUBERNETES_RIGS).items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="rigs to run (default: all)")
    parser.add_argument(
        "--kubernetes", action="store_true", help="run the rigs that need Kubernetes instead of the others"
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="run for a short time, to see that the rigs work; the figures are imprecise",
    )
    parser.add_argument("--output", type=Path, help="write the results to this file, also after a partial or quick run")
    arguments = parser.parse_args()
    rigs = KUBERNETES_RIGS if arguments.kubernetes else RIGS
    if unknown := [name for name in arguments.names if name not in rigs]:
        parser.error(f"unknown rig {unknown[0]!r}; the rigs are {', '.join(rigs)}")
    console = Console(stderr=True)
    if os.geteuid() != 0:
        console.print("bench creates network namespaces and must run as root; run it with sudo", style="red")
        return 1
    # A shell ignores SIGINT for programs in the background, so the handler is set again. SIGTERM is handled like
    # SIGINT, so that both run the clean-up.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        figures, failures = _run(arguments.names or list(rigs), Effort(quick=arguments.quick), console)
    except KeyboardInterrupt:
        console.print("stopped: everything was cleaned up, no results were written")
        return 130
    show(figures, Console())
    whole = not arguments.names and not arguments.quick and not failures
    results = KUBERNETES_RESULTS if arguments.kubernetes else RESULTS
    if path := arguments.output or (results if whole else None):
        write(figures, path)
        console.print(f"results written to {path}")
    for failure in failures:
        console.print(failure, style="red", markup=False)
    return 1 if failures else 0


def _run(names: list[str], effort: Effort, console: Console) -> tuple[list[Figure], list[str]]:
    figures: list[Figure] = []
    failures: list[str] = []
    began = time.monotonic()

    def say(line: str) -> None:
        console.print(f"[dim]{time.monotonic() - began:5.0f} s[/]  {line}", highlight=False)

    with contextlib.ExitStack() as stack:
        try:
            if not _ALONE.issuperset(names) and KUBERNETES_RIGS.keys() >= set(names):
                from bench.kube_mesh import cluster

                stack.enter_context(cluster(say))
        except _EXPECTED as error:
            return [], [str(error)]
        for name in names:
            say(f"[bold]{name}[/]: {(RIGS | KUBERNETES_RIGS)[name]}")
            rig = importlib.import_module(f"bench.{name.replace('-', '_')}")
            try:
                figures += rig.run(effort, say)
            except _EXPECTED as error:
                failures.append(f"{name}: {error}")
                say(f"{name} failed: {error}")
    return figures, failures


if __name__ == "__main__":
    sys.exit(main())
