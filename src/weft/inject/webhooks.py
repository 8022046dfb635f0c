"""Which pods the API server asks about: the selectors of one revision's MutatingWebhookConfiguration, as data.

They are Istio's, and those that `install` writes into the cluster. Between them, no two revisions are asked about the
same pod. Whoever is asked decides for itself, in `decision.py`; what these leave out can also not fail.
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
    """Whom it is for: pods that both selectors select."""

    name: str
    namespaces: Selector
    objects: Selector


def selectors(
    revision: str, *, namespaces_by_default: bool = False, excluded: tuple[str, ...] = CLUSTER_NAMESPACES
) -> tuple[Webhook, ...]:
    """The webhooks of a revision. The default one also answers to the labels that name no revision. `excluded`:
    namespaces about which nobody is asked."""
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
    found = [
        webhook("rev.namespace", (ours, _NO_NAMESPACE_LABEL), (_NOT_DISABLED,)),
        webhook("rev.object", (_NO_NAMESPACE_LABEL, _NO_REVISION), (_NOT_DISABLED, ours)),
    ]
    if (revision or DEFAULT_REVISION) != DEFAULT_REVISION:
        return tuple(found)
    enabled = SelectorRequirement(NAMESPACE_LABEL, "In", ("enabled",))
    wanted = SelectorRequirement(INJECT_LABEL, "In", ("true",))
    unsaid = SelectorRequirement(INJECT_LABEL, "DoesNotExist")
    found.append(webhook("namespace", (enabled,), (_NOT_DISABLED,)))
    found.append(webhook("object", (_NO_NAMESPACE_LABEL, _NO_REVISION), (wanted, _NO_REVISION)))
    if namespaces_by_default:
        found.append(webhook("auto", (_NO_NAMESPACE_LABEL, _NO_REVISION), (unsaid, _NO_REVISION)))
    return tuple(found)
