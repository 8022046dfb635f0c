"""Findings about namespaces whose injection labels contradict each other, have an unknown value, or are missing."""

from __future__ import annotations

from collections.abc import Iterator

from weft.analyze.facts import Facts
from weft.analyze.finding import finding
from weft.base.problem import Problem
from weft.model.names import Labels, Origin
from weft.model.settings import Namespace

INJECTION, REVISION, DATA_PLANE = "istio-injection", "istio.io/rev", "istio.io/dataplane-mode"
_UNDERSTOOD = ("enabled", "disabled")
_NOT_OURS = ("kube-system", "kube-public", "kube-node-lease", "local-path-storage")


def of_namespaces(facts: Facts) -> Iterator[Problem]:
    for namespace in facts.declared.values():
        yield from _of_labels(namespace)
        yield from _of_silence(namespace, facts)
        yield from _of_ambient(namespace.labels, namespace.origin, "the namespace")
    for runners in facts.runners.values():
        for runner in runners:
            yield from _of_ambient(runner.labels, runner.instance.origin, f"the workload {runner.name}")


def _of_labels(namespace: Namespace) -> Iterator[Problem]:
    labels = dict(namespace.labels)
    field = f"metadata.labels.{INJECTION}"
    if INJECTION in labels and REVISION in labels:
        what = (
            f"the namespace has the labels {INJECTION}: {labels[INJECTION]} and {REVISION}: {labels[REVISION]}: "
            f"{INJECTION} takes precedence, and {REVISION} has no effect"
        )
        yield finding(
            "WFT0801", namespace.origin, field, what, f"remove {REVISION}; or remove {INJECTION} to select the revision"
        )
    if labels.get(INJECTION, "enabled") not in _UNDERSTOOD:
        what = f"{INJECTION} is `{labels[INJECTION]}`: the pods of the namespace get no proxy"
        yield finding("WFT0802", namespace.origin, field, what, "write `enabled` or `disabled`")


def _of_ambient(labels: Labels, origin: Origin | None, whose: str) -> Iterator[Problem]:
    if dict(labels).get(DATA_PLANE) == "ambient":
        what = f"{whose} selects ambient mode, which weft does not have: its pods are in the mesh only with a sidecar"
        yield finding(
            "WFT0819",
            origin,
            f"metadata.labels.{DATA_PLANE}",
            what,
            f"label the namespace {INJECTION}: enabled instead",
        )


def _of_silence(namespace: Namespace, facts: Facts) -> Iterator[Problem]:
    """Finding about a namespace without an injection label, if it has Kubernetes pods and none of them has a proxy.
    Pods of the local engine get a proxy without a label."""
    labels = dict(namespace.labels)
    silent = not labels.keys() & {INJECTION, REVISION, DATA_PLANE}
    if not silent or namespace.name in (*_NOT_OURS, facts.settings.root_namespace):
        return
    pods = [each for each in facts.runners.get(namespace.name, ()) if each.instance.by_slice]
    if pods and not any(each.instance.proxied for each in pods):
        what = f"the namespace has no label about injection: its pods ({pods[0].name}, …) get no proxy"
        hint = f"kubectl label namespace {namespace.name} {INJECTION}=enabled, or =disabled if that is intended"
        yield finding("WFT0816", namespace.origin, "metadata.labels", what, hint)
