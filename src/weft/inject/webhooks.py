"""Which pods the API server asks about: the webhooks of one revision's MutatingWebhookConfiguration, as data.

They are Istio's. Between them, no two revisions are asked about the same pod. Whoever is asked decides for itself,
in `decision.py`; what these leave out is never asked about, so that it also cannot fail.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from weft.inject.selector import Requirement, Selector

INJECT_PATH = "/inject"
DEFAULT_REVISION = "default"
# What a cluster itself needs to come up; a webhook that is down must not be in its way.
IGNORED_NAMESPACES = ("kube-system", "kube-public", "kube-node-lease", "local-path-storage")

NAMESPACE_LABEL = "istio-injection"
REVISION_LABEL = "istio.io/rev"
INJECT_LABEL = "sidecar.istio.io/inject"
_NAME_LABEL = "kubernetes.io/metadata.name"

_NOT_DISABLED = Requirement(INJECT_LABEL, "NotIn", ("false",))
_NO_NAMESPACE_LABEL = Requirement(NAMESPACE_LABEL, "DoesNotExist")
_NO_REVISION = Requirement(REVISION_LABEL, "DoesNotExist")


class Webhook(msgspec.Struct, frozen=True):
    """Whom it is for: pods that both selectors select."""

    name: str
    namespaces: Selector
    objects: Selector


def selectors(
    revision: str, *, namespaces_by_default: bool = False, root_namespace: str = "istio-system"
) -> tuple[Webhook, ...]:
    """The webhooks of a revision. The default one also answers to the labels that name no revision."""
    ours = Requirement(REVISION_LABEL, "In", (revision or DEFAULT_REVISION,))
    found = [
        _webhook("rev.namespace", (ours, _NO_NAMESPACE_LABEL), (_NOT_DISABLED,)),
        _webhook("rev.object", (_NO_REVISION, _NO_NAMESPACE_LABEL), (_NOT_DISABLED, ours)),
    ]
    if (revision or DEFAULT_REVISION) != DEFAULT_REVISION:
        return tuple(found)
    enabled = Requirement(NAMESPACE_LABEL, "In", ("enabled",))
    wanted = Requirement(INJECT_LABEL, "In", ("true",))
    found.append(_webhook("namespace", (enabled,), (_NOT_DISABLED,)))
    found.append(_webhook("object", (_NO_NAMESPACE_LABEL, _NO_REVISION), (wanted, _NO_REVISION)))
    if namespaces_by_default:
        others = Requirement(_NAME_LABEL, "NotIn", tuple(dict.fromkeys((*IGNORED_NAMESPACES, root_namespace))))
        unsaid = Requirement(INJECT_LABEL, "DoesNotExist")
        found.append(_webhook("auto", (_NO_NAMESPACE_LABEL, _NO_REVISION, others), (unsaid, _NO_REVISION)))
    return tuple(found)


def webhooks(
    revision: str,
    *,
    service: str,
    namespace: str,
    ca_bundle: str = "",
    failure_policy: Literal["Fail", "Ignore"] = "Fail",
    namespaces_by_default: bool = False,
) -> list[dict[str, Any]]:
    """The `webhooks` of the MutatingWebhookConfiguration. `service` in `namespace` answers; `ca_bundle` is base64."""
    client: dict[str, Any] = {"service": {"name": service, "namespace": namespace, "path": INJECT_PATH, "port": 443}}
    if ca_bundle:
        client["caBundle"] = ca_bundle
    found = selectors(revision, namespaces_by_default=namespaces_by_default, root_namespace=namespace)
    return [
        {
            "name": webhook.name,
            "clientConfig": client,
            "rules": [
                {
                    "operations": ["CREATE"],
                    "apiGroups": [""],
                    "apiVersions": ["v1"],
                    "resources": ["pods"],
                    "scope": "Namespaced",
                }
            ],
            "failurePolicy": failure_policy,
            "matchPolicy": "Equivalent",
            # A container or probe that another webhook adds after us must be seen too.
            "reinvocationPolicy": "IfNeeded",
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "timeoutSeconds": 10,
            "namespaceSelector": msgspec.to_builtins(webhook.namespaces),
            "objectSelector": msgspec.to_builtins(webhook.objects),
        }
        for webhook in found
    ]


def _webhook(prefix: str, namespaces: tuple[Requirement, ...], objects: tuple[Requirement, ...]) -> Webhook:
    return Webhook(
        f"{prefix}.sidecar-injector.istio.io",
        Selector(match_expressions=namespaces),
        Selector(match_expressions=objects),
    )
