"""Measures how long each command of the command line takes on the example shop, from the start of the process to its
end. Wall-clock time includes the time of other processes that the command calls; CPU time is of the command's
process alone.

Each figure is the best of a few runs. A first run of each command is not counted, so that Python's cache of compiled
modules exists, as it does after a user's first command.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage

from bench.figure import Effort, Figure, Say
from bench.process import Failed

_SHOP = Path(__file__).parents[1] / "examples" / "shop"
_REQUESTS = Path(__file__).with_name("requests.yaml")
_RUNS, _QUICK = 5, 1
_HELP, _ANSWER = 150.0, 300.0  # milliseconds

HELP = ("--help", "x --help", "proxy-config --help", "proxy-config clusters --help", "explain --help")
ANSWERS = (
    "ps",
    "status",
    "version",
    "proxy-config listeners frontend",
    "proxy-config routes frontend",
    "proxy-config clusters frontend",
    "proxy-config endpoints frontend",
    "proxy-config secret frontend",
    "proxy-config bootstrap frontend",
    "proxy-config all frontend",
    "proxy-config log frontend",
    "proxy-config routes frontend --why",
    "proxy-status",
    "proxy-status frontend",
    "describe pod frontend",
    "describe svc payments",
    "check-inject frontend",
    "authn tls-check payments",
    "x authz check payments-v1",
    "why frontend 80",
    "explain frontend --to http://payments/charge",
    "explain frontend --to http://payments/charge --at @1",
    "history",
    "bisect frontend --to http://payments/charge",
    "audit",
    "analyze",
    f"analyze {_SHOP}",
    f"validate {_SHOP}",
    f"explain frontend --to http://payments/charge -f {_SHOP}",
    f"diff -f {_SHOP / 'payments.yaml'}",
    f"test {_SHOP} {_REQUESTS}",
)


def run(effort: Effort, say: Say) -> list[Figure]:
    runs = effort.of(_RUNS, _QUICK)
    with _shop() as environment:
        say("the shop runs")
        wanted = [*((words, _HELP) for words in HELP), *((words, _ANSWER) for words in ANSWERS)]
        figures = [each for words, goal in wanted for each in _figures(words, goal, runs, environment)]
    say(f"{len(wanted)} commands, each the best of {runs}")
    return figures


def _figures(words: str, goal: float, runs: int, environment: Mapping[str, str]) -> tuple[Figure, Figure]:
    clock, cpu = zip(*[_milliseconds(words, environment) for _ in range(runs + 1)][1:], strict=True)
    name = words.replace(str(_SHOP), "examples/shop").replace(str(_REQUESTS), "bench/requests.yaml")
    return Figure(f"weft {name}", min(clock), "ms", goal), Figure(f"weft {name}", min(cpu), "CPU ms", goal)


def _milliseconds(words: str, environment: Mapping[str, str]) -> tuple[float, float]:
    """Run one `weft` command and return its wall-clock time and its CPU time, both in milliseconds."""
    before, begun = getrusage(RUSAGE_CHILDREN), time.perf_counter()
    done = _weft(words.split(), environment)
    after, ended = getrusage(RUSAGE_CHILDREN), time.perf_counter()
    if done.returncode not in (0, 1) or "error:" in done.stderr:  # 1: the command has findings
        raise Failed(f"weft {words} exited with {done.returncode}: {done.stderr[-300:]}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return 1000 * (ended - begun), 1000 * cpu


@contextmanager
def _shop() -> Iterator[Mapping[str, str]]:
    """Run the example shop for the duration of the block. Yield environment variables with which `weft` commands
    find this mesh and no other."""
    with tempfile.TemporaryDirectory(prefix="weft-bench-") as directory:
        Path(directory).chmod(0o755)  # the shop's pods run as other users and must be able to read it
        cache = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": f"{directory}/compiled"}
        environment = {**os.environ, **cache, "WEFT_RUN_DIR": f"{directory}/run", "KUBECONFIG": "", "HOME": directory}
        started = _weft(["up", str(_SHOP), "--name", "answers", "--detach"], environment)
        try:
            if started.returncode != 0:
                raise Failed(f"the example shop did not start: {started.stderr[-300:]}")
            yield environment
        finally:
            _weft(["down", "answers"], environment)


def _weft(arguments: list[str], environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "weft.cli", *arguments]
    return subprocess.run(command, env=dict(environment), capture_output=True, text=True, check=False)
