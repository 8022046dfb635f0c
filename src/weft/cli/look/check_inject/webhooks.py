"""Decides which webhook of a cluster injects a pod, and why, in istioctl's words. Input: the webhook configurations,
the labels of a namespace, and a pod. Output: a verdict for each configuration.

Rule: first the API server decides by the selectors whether it calls the injector. Then the injector decides by its
settings.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from weft.inject.decision import required
from weft.inject.selector import Selector, SelectorRequirement
from weft.inject.settings import InjectionSettings
from weft.inject.webhooks import DEFAULT_REVISION, REVISION_LABEL

_NAMESPACE_NAME = "kubernetes.io/metadata.name"  # a label of every namespace; webhooks use it to exclude namespaces


class InjectionVerdict(msgspec.Struct, frozen=True):
    webhook: str
    revision: str
    injected: bool
    reason: str


class WebhookSelectors(msgspec.Struct, frozen=True):
    name: str
    namespaces: Selector
    objects: Selector


class Configuration(msgspec.Struct, frozen=True):
    name: str
    revision: str
    webhooks: tuple[WebhookSelectors, ...]
    namespace: str = ""  # the namespace of the webhook's Service


def configurations(documents: Iterable[Mapping[str, Any]]) -> list[Configuration]:
    """Return the webhook configurations among `documents` that inject sidecars: those of weft, and of any other mesh
    whose webhooks have Istio's names."""
    result = []
    for each in documents:
        webhooks = [
            webhook for webhook in each.get("webhooks") or () if str(webhook.get("name", "")).endswith("istio.io")
        ]
        if webhooks:
            metadata = each["metadata"]
            service = (webhooks[0].get("clientConfig") or {}).get("service") or {}
            result.append(
                Configuration(
                    name=metadata["name"],
                    revision=(metadata.get("labels") or {}).get(REVISION_LABEL, DEFAULT_REVISION),
                    webhooks=tuple(map(_webhook, webhooks)),
                    namespace=service.get("namespace", ""),
                )
            )
    return sorted(result, key=lambda each: each.name)


def verdict(
    configuration: Configuration,
    pod: Mapping[str, Any],
    namespace: str,
    labels: Mapping[str, str],
    settings: InjectionSettings,
) -> InjectionVerdict:
    """Return whether the webhooks of `configuration` inject the pod, and why. `labels` are the namespace's labels;
    `settings` are those of the injector that the webhooks call."""
    namespace_labels = {**labels, _NAMESPACE_NAME: namespace}
    pod_labels = (pod.get("metadata") or {}).get("labels") or {}
    injected, reason = _selected(configuration.webhooks, namespace, namespace_labels, pod_labels)
    if injected:
        decision = required(pod, namespace, settings)
        if not decision.inject:
            injected, reason = False, f"{reason}, but the injector does not inject it: {decision.reason}"
    return InjectionVerdict(configuration.name, configuration.revision, injected, reason)


def _selected(
    webhooks: Iterable[WebhookSelectors],
    namespace: str,
    namespace_labels: Mapping[str, str],
    pod_labels: Mapping[str, str],
) -> tuple[bool, str]:
    prevented = ""
    for each in webhooks:
        in_namespace, of_pod = each.namespaces.selects(namespace_labels), each.objects.selects(pod_labels)
        if in_namespace and of_pod:
            matches = [
                f"{whose} label {label} matches"
                for whose, label in (
                    ("Namespace", _matching(each.namespaces, namespace_labels)),
                    ("pod", _matching(each.objects, pod_labels)),
                )
                if label
            ]
            reason = (
                ", and ".join(matches)
                or "Neither the namespace nor the pod has an injection label, and this webhook selects such pods"
            )
            return True, reason[0].upper() + reason[1:]
        if in_namespace:
            prevented = prevented or _preventing("Pod", each.objects, pod_labels)
        elif of_pod:
            prevented = prevented or _preventing(f"Namespace {namespace}", each.namespaces, namespace_labels)
    if prevented:
        return False, prevented
    wanted, of_pods = _wanted(each.namespaces for each in webhooks), _wanted(each.objects for each in webhooks)
    return False, f"No matching namespace labels ({wanted}) or pod labels ({of_pods})"


def _matching(selector: Selector, labels: Mapping[str, str]) -> str:
    """Return, as text, the labels in `labels` that the selector requires. The selector must select `labels`."""
    return ", ".join(f"{each.key}={labels[each.key]}" for each in selector.requirements if each.operator == "In")


def _preventing(whose: str, selector: Selector, labels: Mapping[str, str]) -> str:
    """Return why the selector rejects the pod or namespace, if one of its `labels` excludes it. Return "" if it is
    rejected only because a required label is missing. `whose` names the pod or namespace in the text."""
    for each in sorted(selector.requirements, key=lambda each: each.key != _NAMESPACE_NAME):
        if each.operator in ("NotIn", "DoesNotExist") and not each.fits(labels):
            if each.key == _NAMESPACE_NAME:
                return f"{whose} is excluded by this webhook"
            return f"{whose} has {each.key}={labels[each.key]} label, preventing injection"
    return ""


def _wanted(selectors: Iterable[Selector]) -> str:
    pairs = (_pairs(each) for selector in selectors for each in selector.requirements if each.operator == "In")
    return ", ".join(dict.fromkeys(pairs))


def _pairs(requirement: SelectorRequirement) -> str:
    return f"{requirement.key}={'|'.join(requirement.values)}"


def _webhook(document: Mapping[str, Any]) -> WebhookSelectors:
    return WebhookSelectors(
        str(document["name"]), _selector(document.get("namespaceSelector")), _selector(document.get("objectSelector"))
    )


def _selector(document: Mapping[str, Any] | None) -> Selector:
    return msgspec.convert(dict(document or {}), type=Selector)
