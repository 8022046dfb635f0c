"""Injects the proxy into objects of files, without a cluster: pods, and every kind with a pod template.

The pod template of an object is changed exactly as the webhook would change the pods created from it. The other fields
of the object are kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from weft.inject.decision import required
from weft.inject.json_patch import copied
from weft.inject.owner import WorkloadOwner, owner_of
from weft.inject.patch import inject
from weft.inject.settings import InjectionSettings
from weft.inject.sidecar import Renderer

# The path of the pod template in each kind; a Pod is its own template.
_TEMPLATES: dict[str, tuple[str, ...]] = {
    "Pod": (),
    "Deployment": ("spec", "template"),
    "StatefulSet": ("spec", "template"),
    "DaemonSet": ("spec", "template"),
    "ReplicaSet": ("spec", "template"),
    "ReplicationController": ("spec", "template"),
    "Job": ("spec", "template"),
    "CronJob": ("spec", "jobTemplate", "spec", "template"),
}


class Result(msgspec.Struct, frozen=True):
    document: Any
    changed: bool
    notes: tuple[str, ...]  # for the user: warnings, and why an object got no sidecar


def inject_document(
    document: Any,
    settings: InjectionSettings,
    render: Renderer,
    *,
    namespace: str = "default",
    native_sidecars: bool = True,
    sleep_hooks: bool = True,
) -> Result:
    """Return the document with a sidecar in the pod template of each of its workloads. If the injector would add no
    sidecar to the pods of a workload, the workload is unchanged, and `notes` of the result has the reason. Objects that
    are no workloads are unchanged, too. `render`: returns Envoy's arguments for a sidecar. Labels of namespaces are not
    considered. `namespace` is used for objects that name none. `native_sidecars` and `sleep_hooks`: whether the cluster
    supports native sidecars and lifecycle hooks that sleep. Raises InjectionRefused."""
    result = copied(document)
    notes: list[str] = []
    changed = False
    for item in _items(result):
        place = _TEMPLATES.get(str(item.get("kind")))
        pod = _at(item, place)
        if place is None or pod is None:
            continue
        metadata = item.get("metadata")
        metadata = metadata if isinstance(metadata, dict) else {}
        inside = str(metadata.get("namespace") or namespace)
        named = f"{item['kind']} {inside}/{metadata.get('name') or metadata.get('generateName') or '?'}"
        if pod.get("metadata") is None:
            pod["metadata"] = {}
        decision = required(pod, inside, settings)
        if not decision.inject:
            notes.append(f"{named} gets no sidecar: {decision.reason}")
            continue
        done = inject(
            pod,
            inside,
            settings,
            render,
            native_sidecars=native_sidecars,
            sleep_hooks=sleep_hooks,
            owner=_owner(item, pod, metadata),
        )
        pod.clear()
        pod.update(done.pod)
        changed = True
        notes += done.warnings
    return Result(result, changed, tuple(notes))


def _items(document: Any) -> Iterator[dict[str, Any]]:
    if not isinstance(document, dict):
        return
    items = document.get("items")
    if str(document.get("kind", "")).endswith("List") and isinstance(items, list):
        for item in items:
            yield from _items(item)
    else:
        yield document


def _at(item: Any, place: tuple[str, ...] | None) -> dict[str, Any] | None:
    for key in place or ():
        item = item.get(key) if isinstance(item, dict) else None
    return item if isinstance(item, dict) and isinstance(item.get("spec"), dict) else None


def _owner(item: dict[str, Any], pod: dict[str, Any], metadata: dict[str, Any]) -> WorkloadOwner | None:
    """Return the owner that the webhook will find for the pods of `item`, a workload; None if `item` is itself a pod.
    `pod`: the pod template in `item`. `metadata`: that of `item`."""
    if item["kind"] == "Pod":
        return None
    reference = {
        "apiVersion": str(item.get("apiVersion")),
        "kind": item["kind"],
        "name": str(metadata.get("name") or str(metadata.get("generateName") or "").rstrip("-")),
        "controller": True,
    }
    inner = pod["metadata"] if isinstance(pod["metadata"], dict) else {}
    labels = inner.get("labels")
    return owner_of({"ownerReferences": [reference], "labels": labels if isinstance(labels, dict) else {}})
