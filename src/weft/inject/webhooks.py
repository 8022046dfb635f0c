"""The selectors of one revision's MutatingWebhookConfiguration, as data: for which pods the API server calls the
injector.

The selectors are the same as Istio's, and `install` writes them into the cluster. No pod is selected by the webhooks
of two revisions. For a selected pod, the injector then decides whether it gets a proxy (`decision.py`). A pod that
no webhook selects is created even if the injector is down.
"""

from __future__ import annotations

import msgspec

from weft.inject.selector import Selector, SelectorRequirement
from weft.model.names import CLUSTER_NAMESPACES

DEFAULT_REVISION = "default"

NAMESPACE_LABEL = "istio-injection"
REVISION_LABEL = "istio.io/rev"
INJECT_LABEL = "sidecar.istio.io/inject"

_NOT_DISABLED = SelectorRequirement(INJECT_LABEL, "NotIn", ("false",))
_NO_NAMESPACE_LABEL = SelectorRequirement(NAMESPACE_LABEL, "DoesNotExist")
_NO_REVISION = SelectorRequirement(REVISION_LABEL, "DoesNotExist")


class Webhook(msgspec.Struct, frozen=True):
    """One webhook. It is called for a pod if the selector `namespaces` selects the pod's namespace and the selector
    `objects` selects the pod."""

    name: str
    namespaces: Selector
    objects: Selector


def selectors(
    revision: str, *, namespaces_by_default: bool = False, excluded: tuple[str, ...] = CLUSTER_NAMESPACES
) -> tuple[Webhook, ...]:
    """Return the webhooks of a revision. Those of the default revision also select by labels that name no revision,
    such as `istio-injection: enabled`; with `namespaces_by_default`, they also select pods without any label.
    `excluded` are the namespaces that no webhook selects."""
    not_excluded = SelectorRequirement("kubernetes.io/metadata.name", "NotIn", excluded)

    def webhook(
        prefix: str, namespaces: tuple[SelectorRequirement, ...], objects: tuple[SelectorRequirement, ...]
    ) -> Webhook:
        return Webhook(
            f"{prefix}.sidecar-injector.istio.io",
            Selector(match_expressions=(*namespaces, not_excluded)),
            Selector(match_expressions=objects),
        )

    ours = SelectorRequirement(REVISION_LABEL, "In", (revision or DEFAULT_REVISION,))
    webhooks = [
        webhook("rev.namespace", (ours, _NO_NAMESPACE_LABEL), (_NOT_DISABLED,)),
        webhook("rev.object", (_NO_NAMESPACE_LABEL, _NO_REVISION), (_NOT_DISABLED, ours)),
    ]
    if (revision or DEFAULT_REVISION) != DEFAULT_REVISION:
        return tuple(webhooks)
    enabled = SelectorRequirement(NAMESPACE_LABEL, "In", ("enabled",))
    wanted = SelectorRequirement(INJECT_LABEL, "In", ("true",))
    unset = SelectorRequirement(INJECT_LABEL, "DoesNotExist")
    webhooks.append(webhook("namespace", (enabled,), (_NOT_DISABLED,)))
    webhooks.append(webhook("object", (_NO_NAMESPACE_LABEL, _NO_REVISION), (wanted, _NO_REVISION)))
    if namespaces_by_default:
        webhooks.append(webhook("auto", (_NO_NAMESPACE_LABEL, _NO_REVISION), (unset, _NO_REVISION)))
    return tuple(webhooks)
