"""Which webhook of a cluster injects a pod, and why, in istioctl's words. Webhook configurations, a namespace's labels
and a pod come in; a verdict for each configuration leaves.

Rule: two decide. The API server, by the selectors, whether the injector is asked; then the injector, by its settings.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from weft.inject.decision import required
from weft.inject.selector import Selector, SelectorRequirement
from weft.inject.settings import InjectionSettings
from weft.inject.webhooks import DEFAULT_REVISION, REVISION_LABEL

_NAMESPACE_NAME = "kubernetes.io/metadata.name"  # of every namespace: it says whom nobody is asked about


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
    namespace: str = ""  # of the service that is asked


def configurations(documents: Iterable[Mapping[str, Any]]) -> list[Configuration]:
    """Those that inject sidecars, of any mesh that does it as Istio does."""
    found = []
    for each in documents:
        webhooks = [one for one in each.get("webhooks") or () if str(one.get("name", "")).endswith("istio.io")]
        if webhooks:
            metadata = each["metadata"]
            service = (webhooks[0].get("clientConfig") or {}).get("service") or {}
            found.append(
                Configuration(
                    name=metadata["name"],
                    revision=(metadata.get("labels") or {}).get(REVISION_LABEL, DEFAULT_REVISION),
                    webhooks=tuple(map(_webhook, webhooks)),
                    namespace=service.get("namespace", ""),
                )
            )
    return sorted(found, key=lambda each: each.name)


def verdict(
    configuration: Configuration,
    pod: Mapping[str, Any],
    namespace: str,
    labels: Mapping[str, str],
    settings: InjectionSettings,
) -> InjectionVerdict:
    """`labels` are the namespace's; `settings`, those of the injector that would be asked."""
    namespace_labels = {**labels, _NAMESPACE_NAME: namespace}
    pod_labels = (pod.get("metadata") or {}).get("labels") or {}
    injected, reason = _asked(configuration.webhooks, namespace, namespace_labels, pod_labels)
    if injected:
        decision = required(pod, namespace, settings)
        if not decision.inject:
            injected, reason = False, f"{reason}, but the injector leaves it alone: {decision.reason}"
    return InjectionVerdict(configuration.name, configuration.revision, injected, reason)


def _asked(
    webhooks: Iterable[WebhookSelectors],
    namespace: str,
    namespace_labels: Mapping[str, str],
    pod_labels: Mapping[str, str],
) -> tuple[bool, str]:
    prevented = ""
    for each in webhooks:
        in_namespace, of_pod = each.namespaces.selects(namespace_labels), each.objects.selects(pod_labels)
        if in_namespace and of_pod:
            told = [
                f"{whose} label {label} matches"
                for whose, label in (
                    ("Namespace", _matching(each.namespaces, namespace_labels)),
                    ("pod", _matching(each.objects, pod_labels)),
                )
                if label
            ]
            reason = ", and ".join(told) or "Neither namespace nor pod has a label, which this webhook asks for"
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
    """What it asks for and finds."""
    return ", ".join(f"{each.key}={labels[each.key]}" for each in selector.requirements if each.operator == "In")


def _preventing(whose: str, selector: Selector, labels: Mapping[str, str]) -> str:
    """A label that keeps it out, rather than one that is missing."""
    for each in sorted(selector.requirements, key=lambda each: each.key != _NAMESPACE_NAME):
        if each.operator in ("NotIn", "DoesNotExist") and not each.fits(labels):
            if each.key == _NAMESPACE_NAME:
                return f"{whose} is left alone by this webhook"
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
