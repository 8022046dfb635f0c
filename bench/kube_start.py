"""Measures the time from a pod's creation until it is Ready, for injected and plain pods in turn on the test
cluster. containerd's events show how long each of their containers took.

kubelet checks its containers once a second, so a pod takes about one second for each container that has to wait for
another. Pods of a third kind, with an init container and a native sidecar that do nothing, show how much of the
difference is due to that. Further kinds show the settings that reduce the number of such containers: a sidecar that
is not a native sidecar, traffic redirection by the node, and both. The pods are created at random points of
kubelet's one-second interval.
"""

from __future__ import annotations

import asyncio
import json
import random
import tempfile
import time
from datetime import datetime
from pathlib import Path
from statistics import median

import msgspec
from tools.kube.process import Program

from bench import kube_mesh
from bench.figure import Effort, Figure, Say, quantile
from bench.kube_mesh import Namespace, Object, Status

_GOAL_SECONDS = 1.0
_EVENTS_SECONDS = 2.0
_PLAIN, _EMPTY, _INJECTED = "plain", "empty", "injected"
_NO_NATIVE, _BY_NODE, _BOTH = "no-native", "by-node", "both"
_CHOICES = {
    _NO_NATIVE: "sidecar that is no native one",
    _BY_NODE: "redirected by the node",
    _BOTH: "redirected by the node, sidecar that is no native one",
}
_REVISION = "bench-node"  # the revision whose node agent sets up the redirection of its pods
_NO_NATIVE_SIDECAR = {"sidecar.istio.io/nativeSidecar": "false"}


class Start(msgspec.Struct, frozen=True):
    """The start of one pod. Times are seconds since the epoch, so that they can be compared with containerd's times."""

    created: float
    ready: float
    status: Status

    @property
    def took(self) -> float:
        return self.ready - self.created


class Life(msgspec.Struct):
    """When the first process of a container began and ended, in seconds since the epoch; 0: not seen."""

    began: float = 0.0
    ended: float = 0.0


def run(effort: Effort, say: Say) -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="weft-bench-") as directory:
        node = kube_mesh.running_cluster().holder
        events = Program("ctr", [*node.joined(), "ctr", "-n", "k8s.io", "events"], Path(directory), joined=True)
        events.start()
        try:
            with kube_mesh.revision(_REVISION, "injection.redirectBy=node"):
                starts = asyncio.run(_measure(effort.of(12, 2), say))
            time.sleep(_EVENTS_SECONDS)
        finally:
            events.stop()
        lives = lives_of(events.log.read_text().splitlines())
    return _figures(starts, lives)


async def _measure(number: int, say: Say) -> dict[str, list[Start]]:
    """Start `number` pods of each kind and return the starts by kind."""
    starts_by_kind: dict[str, list[Start]] = {kind: [] for kind in (_PLAIN, _EMPTY, _INJECTED, *_CHOICES)}
    async with (
        kube_mesh.client() as client,
        kube_mesh.namespace(client, "start") as usual,
        kube_mesh.namespace(client, "start", revision=_REVISION) as by_node,
    ):
        for turn in range(number + 1):
            for kind in random.sample(list(starts_by_kind), len(starts_by_kind)):
                await asyncio.sleep(random.uniform(0, 1))
                start = await _start(by_node if kind in (_BY_NODE, _BOTH) else usual, kind, turn)
                if turn:  # the first pod of each kind finds empty caches and is not counted
                    starts_by_kind[kind].append(start)
        medians = (f"{kind} {median(each.took for each in starts):.2f} s" for kind, starts in starts_by_kind.items())
        say(f"{number} pods of each kind: {', '.join(medians)}")
    return starts_by_kind


async def _start(space: Namespace, kind: str, turn: int) -> Start:
    name = f"{kind}-{turn}"
    manifest = kube_mesh.pod(name)
    if kind in (_PLAIN, _EMPTY):
        manifest["metadata"]["labels"]["sidecar.istio.io/inject"] = "false"
    if kind == _EMPTY:
        manifest["spec"]["initContainers"] = _doing_nothing(manifest["spec"]["containers"][0])
    if kind in (_NO_NATIVE, _BOTH):
        manifest["metadata"]["annotations"].update(_NO_NATIVE_SIDECAR)
    offset = time.time() - time.monotonic()
    created = time.monotonic()
    await space.create(manifest)
    ready = await space.pods.until_ready(name)
    return Start(created + offset, ready + offset, space.pods.statuses[name])


def _doing_nothing(app: Object) -> list[Object]:
    """Return the same number of init containers as injection adds, in the same order, but without any work to do."""
    return [
        {**app, "name": "init", "command": ["true"]},
        {**app, "name": "sidecar", "restartPolicy": "Always"},
    ]


def lives_of(lines: list[str]) -> dict[str, Life]:
    """Parse the output of `ctr events` and return when each container began and ended, by container id."""
    lives: dict[str, Life] = {}
    for line in lines:
        words = line.split(" ", 6)  # date, time, offset, zone, namespace, topic, JSON
        if len(words) < 7 or words[5] not in ("/tasks/start", "/tasks/exit"):
            continue
        at = datetime.fromisoformat(f"{words[0]} {words[1][:15].rstrip('.')}{words[2]}").timestamp()
        event = json.loads(words[6])
        container = event["container_id"]
        life = lives.setdefault(container, Life())
        if words[5] == "/tasks/start":
            life.began = life.began or at
        elif event.get("id", container) == container:  # not a process that `exec` started in the container
            life.ended = at
    return lives


def _figures(starts_by_kind: dict[str, list[Start]], lives: dict[str, Life]) -> list[Figure]:
    plain, injected = starts_by_kind[_PLAIN], starts_by_kind[_INJECTED]
    middle = {kind: median(each.took for each in starts) for kind, starts in starts_by_kind.items()}
    late = {kind: quantile((each.took for each in starts), 0.9) for kind, starts in starts_by_kind.items()}
    name = "pod created → Ready"
    usual, ours = middle[_PLAIN], middle[_INJECTED]
    figures = [
        Figure(f"{name}: injected", ours, "s", baseline=usual),
        Figure(f"{name}: injected, p90", late[_INJECTED], "s", baseline=late[_PLAIN]),
        Figure(f"{name}: injected, more than plain", ours - usual, "s", _GOAL_SECONDS),
        Figure(f"{name}: with an init container and a sidecar that do nothing", middle[_EMPTY], "s", baseline=usual),
        *(
            figure
            for kind, what in _CHOICES.items()
            for figure in (
                Figure(f"{name}: {what}", middle[kind], "s", baseline=usual),
                Figure(f"{name}: {what}, more than plain", middle[kind] - usual, "s", _GOAL_SECONDS),
            )
        ),
    ]

    def step(what: str, starts: list[Start], begin: str, end: str) -> float:
        return median(_moment(end, each, lives) - _moment(begin, each, lives) for each in starts)

    steps = (
        ("until the first container runs", "created", "istio-init.began"),
        ("istio-init runs", "istio-init.began", "istio-init.ended"),
        ("until the proxy runs", "istio-init.ended", "istio-proxy.began"),
        ("until the app runs", "istio-proxy.began", "app.began"),
        ("until Ready is told", "app.began", "ready"),
    )
    baselines = {
        "until the first container runs": step("", plain, "created", "app.began"),
        "until Ready is told": step("", plain, "app.began", "ready"),
    }
    return [
        *figures,
        *(
            Figure(f"{name}: injected, {what}", step(what, injected, begin, end), "s", baseline=baselines.get(what))
            for what, begin, end in steps
        ),
    ]


def _moment(what: str, start: Start, lives: dict[str, Life]) -> float:
    if what == "created":
        return start.created
    if what == "ready":
        return start.ready
    container, _, which = what.partition(".")
    life = lives.get(start.status.container(container), Life())
    return float(getattr(life, which))
