"""Findings that need a running cluster: pods without the proxy they should have or with an older one, revisions that
are not installed, services without a ready pod."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec

from weft.analyze.facts import Facts
from weft.analyze.finding import finding
from weft.analyze.namespaces import INJECTION, REVISION
from weft.analyze.pods import found
from weft.analyze.templates import PodTemplate
from weft.base.problem import Problem
from weft.base.suggest import did_you_mean
from weft.model.proxy import IDENTITY_DRIVER

DEFAULT = "default"


class Installed(msgspec.Struct, frozen=True):
    """The revisions that are installed in the cluster. `images`: the proxy image that new pods get, by revision."""

    revisions: frozenset[str] = frozenset()
    images: Mapping[str, str] = {}


def of_proxies(
    facts: Facts, pods: Iterable[PodTemplate], installed: Installed, wants_proxy: Callable[[PodTemplate], bool]
) -> Iterator[Problem]:
    """Findings about the proxies of existing pods. `installed`: the revisions in the cluster. `wants_proxy`: whether a
    pod would get a proxy if it were created now."""
    labels = {name: dict(namespace.labels) for name, namespace in facts.declared.items()}
    yield from _of_revisions(facts, installed, labels)
    yield from _of_readiness(facts)
    old: dict[str, list[PodTemplate]] = defaultdict(list)
    for pod in pods:
        if pod.over or not pod.runs:
            continue
        if pod.proxy is None:
            if wants_proxy(pod):
                hint = "restart its workload with kubectl rollout restart, or delete the pod if it is not needed"
                what = "the pod has no proxy, and a pod like this would get one now"
                yield found("WFT0804", pod.document, (), what, hint)
            continue
        revision, wanted = _revision(pod), _wanted(labels.get(pod.namespace, {}))
        if revision and wanted and revision != wanted:
            what = f"the pod's proxy is of revision {revision}, and namespace {pod.namespace} selects {wanted}"
            yield found("WFT0805", pod.document, (), what, "restart the pod's workload")
        elif revision and pod.proxy.image != installed.images.get(revision, pod.proxy.image):
            old[pod.namespace].append(pod)
    yield from _of_images(old, installed)


def _of_images(old: Mapping[str, list[PodTemplate]], installed: Installed) -> Iterator[Problem]:
    for namespace, pods in sorted(old.items()):
        first = pods[0]
        wanted = installed.images.get(_revision(first), "")
        listed = ", ".join(each.name for each in pods[:3]) + (" and others" if len(pods) > 3 else "")
        has = first.proxy.image if first.proxy else ""
        what = f"{listed} in namespace {namespace} have the proxy image {has}, and new pods get {wanted}"
        yield found("WFT0806", first.document, (), what, f"kubectl rollout restart deployment -n {namespace}")


def _of_revisions(facts: Facts, installed: Installed, labels: Mapping[str, Mapping[str, str]]) -> Iterator[Problem]:
    for name, namespace in facts.declared.items() if installed.revisions else ():
        wanted = _wanted(labels[name])
        if wanted and wanted not in installed.revisions:
            what = f"the namespace selects revision {wanted}, which is not installed: new pods get no proxy"
            hint = did_you_mean(wanted, installed.revisions)
            yield finding("WFT0803", namespace.origin, "metadata.labels", what, hint)


def _of_readiness(facts: Facts) -> Iterator[Problem]:
    for service in facts.services:
        if not service.selector or not service.sliced or service.publish_not_ready:
            continue
        behind = [each for each in facts.selected(service.namespace, service.selector) if each.instance.by_slice]
        pods = [each for each in behind if each.instance.addresses]
        if pods and not any(each.instance.ready for each in behind):
            what = f"none of the service's {len(pods)} pods ({pods[0].name}, …) is ready: calls fail with 503"
            yield finding("WFT0317", service.origin, "spec.selector", what, f"kubectl get pods -n {service.namespace}")


def _revision(pod: PodTemplate) -> str:
    """The revision of a pod, from the CSI driver of its identity volume, which never changes during the life of a
    pod."""
    for driver in pod.drivers:
        if driver == IDENTITY_DRIVER:
            return DEFAULT
        if driver.endswith(f".{IDENTITY_DRIVER}"):
            return driver.removesuffix(f".{IDENTITY_DRIVER}")
    return ""


def _wanted(labels: Mapping[str, str]) -> str:
    if INJECTION in labels:
        return DEFAULT if labels[INJECTION] == "enabled" else ""
    return labels.get(REVISION, "")
