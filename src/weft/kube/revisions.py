"""Finds the revisions of weft on a cluster, and the namespaces and pods that use each revision. The label of a
namespace determines the revision of its new pods. The revision of an existing pod follows from the CSI driver of its
identity volume, which never changes, even if the namespace's label does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

import msgspec

from weft.kube.client import Client
from weft.kube.resource import DAEMON_SETS, DEPLOYMENTS, NAMESPACES, PODS, STATEFUL_SETS, ResourceKind
from weft.kube.rollout import restart
from weft.model.gateway_api import GATEWAY_NAME
from weft.model.proxy import IDENTITY_DRIVER

DEFAULT = "default"
REVISION_LABEL = "istio.io/rev"
INJECTION_LABEL = "istio-injection"
_LABELS = (REVISION_LABEL, INJECTION_LABEL)
_BEFORE_MOVE = "weft.dev/before-move"  # annotation of a namespace that was moved: a _Before in JSON
_CONTROL = "app=istiod,app.kubernetes.io/name=weft"
_VERSION = "app.kubernetes.io/version"

_OVER = ("Succeeded", "Failed")  # phases of pods whose volumes are already unmounted


class Revision(msgspec.Struct, frozen=True):
    name: str
    namespace: str  # of its control plane
    version: str


class Use(msgspec.Struct, frozen=True):
    """How one namespace uses revisions (installed versions) of weft: the revision that its new pods get, and the
    number of its current pods by revision."""

    namespace: str
    revision: str  # "" if its pods get no proxy
    pods: Mapping[str, int] = {}

    @property
    def is_settled(self) -> bool:
        return all(name == self.revision for name in self.pods)


async def revisions(client: Client) -> list[Revision]:
    deployments = (await client.list(DEPLOYMENTS, _Object, labels=_CONTROL)).items
    return [
        Revision(labels.get(REVISION_LABEL, DEFAULT), each.metadata.namespace, labels.get(_VERSION, ""))
        for each in deployments
        for labels in (each.metadata.labels or {},)
    ]


async def uses(client: Client, *, beside: Collection[tuple[str, str]] = ()) -> list[Use]:
    """Return how each namespace uses revisions, for all namespaces whose current or new pods have proxies. `beside`:
    Gateways as (namespace, name), whose pods are not counted."""
    counted: dict[str, Counter[str]] = {}
    for pod in (await client.list(PODS, _Pod)).items:
        revision = _revision_of(pod)
        if (pod.metadata.namespace, (pod.metadata.labels or {}).get(GATEWAY_NAME, "")) in beside:
            continue
        if revision and pod.status.phase not in _OVER:
            counted.setdefault(pod.metadata.namespace, Counter())[revision] += 1
    namespaces = (await client.list(NAMESPACES, _Object)).items
    chosen = {each.metadata.name: chosen_revision(each.metadata.labels or {}) for each in namespaces}
    return [
        Use(name, revision, dict(sorted(counted.get(name, Counter()).items())))
        for name, revision in sorted(chosen.items())
        if revision or name in counted
    ]


async def move(client: Client, namespace: str, revision: str) -> list[tuple[ResourceKind, str]]:
    """Label a namespace for this revision and restart its workloads, so that their new pods get proxies of the
    revision. Returns the restarted workloads by kind and name, so that the caller can wait for their rollouts.
    The label `istio-injection` is removed, because it would override the revision. The labels from before are kept in
    an annotation, and a move back to the revision from before restores them."""
    current = (await client.get(NAMESPACES, namespace, _Object)).metadata
    annotations, labels = current.annotations or {}, current.labels or {}
    before = _before(annotations, labels) or _Before(
        revision=chosen_revision(labels) or await _only_revision(client, namespace),
        labels={name: labels[name] for name in _LABELS if name in labels},
    )
    is_back = before.revision == revision
    wanted = before.labels if is_back else {REVISION_LABEL: revision}
    kept = None if is_back else msgspec.json.encode(msgspec.structs.replace(before, moved_to=revision)).decode()
    metadata = {"labels": {name: wanted.get(name) for name in _LABELS}, "annotations": {_BEFORE_MOVE: kept}}
    await client.patch(NAMESPACES, namespace, {"metadata": metadata})
    restarted = []
    for resource in (DEPLOYMENTS, STATEFUL_SETS, DAEMON_SETS):
        for workload in (await client.list(resource, _Workload, namespace=namespace)).items:
            if not workload.spec.template.may_have_proxy:
                continue
            await restart(client, resource, namespace, workload.metadata.name)
            restarted.append((resource, workload.metadata.name))
    return restarted


def _before(annotations: Mapping[str, str], labels: Mapping[str, str]) -> _Before | None:
    """Return what the last move kept in the annotations of a namespace. None if there was no move, or if the labels
    were changed since then."""
    try:
        before = msgspec.json.decode(annotations.get(_BEFORE_MOVE, ""), type=_Before)
    except (msgspec.MsgspecError, RecursionError):
        return None
    unchanged = INJECTION_LABEL not in labels and labels.get(REVISION_LABEL) == before.moved_to
    return before if unchanged and before.labels.keys() <= set(_LABELS) else None


async def _only_revision(client: Client, namespace: str) -> str:
    """Return the revision of a namespace's pods; "" if they have none, or several. This is the revision of a namespace
    that has no labels for injection, where pods are injected by their own labels or by default."""
    pods = (await client.list(PODS, _Pod, namespace=namespace)).items
    used = {_revision_of(pod) for pod in pods if pod.status.phase not in _OVER} - {""}
    return used.pop() if len(used) == 1 else ""


def chosen_revision(labels: Mapping[str, str]) -> str:
    """Return the revision whose proxies new pods get in a namespace with these labels; "" if they get no proxy. The
    label `istio-injection` overrides the revision's label, as in the webhooks' selectors."""
    if INJECTION_LABEL in labels:
        return DEFAULT if labels[INJECTION_LABEL] == "enabled" else ""
    return labels.get(REVISION_LABEL, "")


class _Before(msgspec.Struct, frozen=True):
    """What a namespace had before it was moved: its revision ("" if unknown) and its labels for injection. `moved_to`:
    the revision that it was moved to."""

    revision: str
    labels: dict[str, str]
    moved_to: str = ""


class _Metadata(msgspec.Struct, frozen=True):
    name: str
    namespace: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class _Object(msgspec.Struct, frozen=True):
    metadata: _Metadata


class _Csi(msgspec.Struct, frozen=True):
    driver: str


class _Volume(msgspec.Struct, frozen=True):
    csi: _Csi | None = None


class _PodSpec(msgspec.Struct, frozen=True):
    volumes: tuple[_Volume, ...] = ()


class _PodStatus(msgspec.Struct, frozen=True):
    phase: str = ""


class _Pod(msgspec.Struct, frozen=True):
    metadata: _Metadata
    spec: _PodSpec
    status: _PodStatus = _PodStatus()


class _TemplateMetadata(msgspec.Struct, frozen=True):
    labels: dict[str, str] | None = None


class _TemplateSpec(msgspec.Struct, frozen=True, rename="camel"):
    host_network: bool = False


class _Template(msgspec.Struct, frozen=True):
    metadata: _TemplateMetadata = _TemplateMetadata()
    spec: _TemplateSpec = _TemplateSpec()

    @property
    def may_have_proxy(self) -> bool:
        labels = self.metadata.labels or {}
        return not self.spec.host_network and labels.get("sidecar.istio.io/inject") != "false"


class _WorkloadSpec(msgspec.Struct, frozen=True):
    template: _Template


class _Workload(msgspec.Struct, frozen=True):
    metadata: _Metadata
    spec: _WorkloadSpec


def _revision_of(pod: _Pod) -> str:
    for volume in pod.spec.volumes:
        if volume.csi is not None:
            if volume.csi.driver == IDENTITY_DRIVER:
                return DEFAULT
            if volume.csi.driver.endswith(f".{IDENTITY_DRIVER}"):
                return volume.csi.driver.removesuffix(f".{IDENTITY_DRIVER}")
    return ""
