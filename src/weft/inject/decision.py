"""Decides whether a pod gets a sidecar, with the reason as text; it follows Istio's truth table.

`decide` is the whole decision: the API server's webhook selectors and then the injector. `required` is the injector's
part, for a pod that the API server has sent to one of weft's webhooks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from weft.inject.settings import InjectionSettings
from weft.inject.webhooks import (
    DEFAULT_REVISION,
    INJECT_LABEL,
    NAMESPACE_LABEL,
    REVISION_LABEL,
    selectors,
)
from weft.model.names import CLUSTER_NAMESPACES

_YES = frozenset({"y", "yes", "true", "on"})
_NO = frozenset({"n", "no", "false", "off"})


class Decision(msgspec.Struct, frozen=True):
    inject: bool
    reason: str
    doubtful: bool = False  # the pod's author may have meant something else


def decide(pod: Mapping[str, Any], namespace: str, labels: Mapping[str, str], settings: InjectionSettings) -> Decision:
    """Decide whether a pod gets a sidecar. `labels` are those of the pod's namespace. All commands use this
    function, so that they give the same answer."""
    namespace_labels = {**labels, "kubernetes.io/metadata.name": namespace}
    pod_labels = _strings(pod, "labels")
    webhooks = selectors(
        settings.revision,
        namespaces_by_default=settings.enable_namespaces_by_default,
        excluded=settings.excluded_namespaces,
    )
    if any(each.namespaces.selects(namespace_labels) and each.objects.selects(pod_labels) for each in webhooks):
        return required(pod, namespace, settings)
    if namespace in settings.excluded_namespaces:
        return _excluded(namespace)
    return Decision(
        False, _why_not_selected(namespace, namespace_labels, pod_labels, settings.revision or DEFAULT_REVISION)
    )


def required(pod: Mapping[str, Any], namespace: str, settings: InjectionSettings) -> Decision:
    """Decide whether a pod that the API server has sent to the injector gets a sidecar. The first of these decides:
    hostNetwork and excluded namespaces (no sidecar), the pod's label or annotation `sidecar.istio.io/inject`, the
    selectors in `settings`, and `autoInject` in `settings`."""
    spec = pod.get("spec")
    if isinstance(spec, Mapping) and spec.get("hostNetwork"):
        return Decision(
            False, "the pod uses hostNetwork, where a redirect would intercept the traffic of the whole node"
        )
    if namespace in settings.excluded_namespaces:
        return _excluded(namespace)
    labels = _strings(pod, "labels")
    annotations = _strings(pod, "annotations")
    for place, values in (("label", labels), ("annotation", annotations)):
        # The label overrides the older annotation, even if the label is empty.
        if INJECT_LABEL not in values:
            continue
        value = values[INJECT_LABEL]
        if value and value.lower() not in _YES | _NO:
            what = f"the pod's {place} {INJECT_LABEL} is {value}, which is neither true nor false"
            return Decision(False, what, doubtful=True)
        if value:
            return Decision(value.lower() in _YES, f"the pod's {place} {INJECT_LABEL} is {value}")
        break
    for selector in settings.never_inject_selector:
        if selector.requirements and selector.selects(labels):
            return Decision(False, f"the pod's labels match neverInjectSelector ({selector})")
    for selector in settings.always_inject_selector:
        if selector.requirements and selector.selects(labels):
            return Decision(True, f"the pod's labels match alwaysInjectSelector ({selector})")
    if not settings.auto_inject:
        return Decision(False, f"autoInject is off, and the pod has no label {INJECT_LABEL}: true")
    return Decision(True, "a label of the namespace, or the pod's revision label, enables injection")


def _excluded(namespace: str) -> Decision:
    why = "a system namespace of the cluster" if namespace in CLUSTER_NAMESPACES else "in excludedNamespaces"
    return Decision(False, f"namespace {namespace} is {why}")


def _why_not_selected(namespace: str, labels: Mapping[str, str], pod: Mapping[str, str], revision: str) -> str:
    """Return why no webhook of `revision` selects the pod. `labels` are those of its namespace, `pod` are its own
    labels. The possible reasons are checked in the order in which a person would look."""
    if pod.get(INJECT_LABEL) == "false":
        return f"the pod's label {INJECT_LABEL} is false"
    if NAMESPACE_LABEL in labels and labels[NAMESPACE_LABEL] != "enabled":
        value = labels[NAMESPACE_LABEL]
        also = "" if value == "disabled" else ", which is neither enabled nor disabled"
        return f"namespace {namespace} has the label {NAMESPACE_LABEL}: {value}{also}"
    if NAMESPACE_LABEL in labels:
        return f"namespace {namespace} has the label {NAMESPACE_LABEL}, which belongs to revision {DEFAULT_REVISION}"
    if labels.get(REVISION_LABEL, revision) != revision:
        return f"namespace {namespace} belongs to revision {labels[REVISION_LABEL]}, not to {revision}"
    if pod.get(REVISION_LABEL, revision) != revision:
        return f"the pod's label {REVISION_LABEL} names revision {pod[REVISION_LABEL]}, not {revision}"
    if INJECT_LABEL in pod and pod[INJECT_LABEL] != "true" and revision == DEFAULT_REVISION:
        return (
            f"namespace {namespace} has no label that enables injection, so the pod's label {INJECT_LABEL} must be "
            f"`true`, not `{pod[INJECT_LABEL]}`"
        )
    return f"neither namespace {namespace} nor the pod has a label that enables injection"


def _strings(pod: Mapping[str, Any], field: str) -> Mapping[str, str]:
    metadata = pod.get("metadata")
    entries = metadata.get(field) if isinstance(metadata, Mapping) else None
    # The API server rejects a pod with any other value, after the webhooks.
    pairs = entries.items() if isinstance(entries, Mapping) else ()
    return {name: value for name, value in pairs if isinstance(value, str)}
