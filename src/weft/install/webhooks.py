"""The webhook configurations: for which new pods the API server calls the injector, and for which resources the
validator.

The selectors implement the part of Istio's injection rules that depends on labels only; for the selected pods, the
injector decides. The webhooks' names are Istio's, too. `caBundle` is omitted: the control plane sets and maintains it,
and applying these objects again does not remove it. Rule: no webhook may ever block a pod of the cluster's own
namespaces.
"""

from __future__ import annotations

from typing import Any

from weft.install.crds import DEFINITIONS
from weft.install.names import REVISION, InstallationNames
from weft.install.values import Values

_INJECT, _ENABLED = "sidecar.istio.io/inject", "istio-injection"
_NAMESPACE = "kubernetes.io/metadata.name"  # a label that the API server sets on every namespace


def webhooks(values: Values) -> list[dict[str, Any]]:
    return [injector(values), *([validator(values)] if values.validation.enabled else [])]


def injector(values: Values) -> dict[str, Any]:
    names = InstallationNames.of(values)
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": names.metadata(names.injector, namespaced=False, app="sidecar-injector"),
        "webhooks": [
            _injection_webhook(values, name, namespaces, pods)
            for name, namespaces, pods in _injection_selectors(values, names)
        ],
    }


def validator(values: Values) -> dict[str, Any]:
    """Return the ValidatingWebhookConfiguration. An object with a revision label is validated by that revision, any
    other object by the default revision."""
    names = InstallationNames.of(values)
    mine = [("rev.validation.istio.io", _in(REVISION, names.revision))]
    if names.is_default:
        mine.append(("validation.istio.io", _absent(REVISION)))
    groups = sorted({definition.group for definition in DEFINITIONS})
    rules = [
        {
            "apiGroups": [group],
            "apiVersions": ["*"],
            "operations": ["CREATE", "UPDATE"],
            "resources": [definition.plural for definition in DEFINITIONS if definition.group == group],
            "scope": "Namespaced",
        }
        for group in groups
    ]
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": names.metadata(names.validator, namespaced=False, app="istiod"),
        "webhooks": [
            {
                **_webhook(names, name, "/validate", values.validation.failure_policy),
                "rules": rules,
                "objectSelector": {"matchExpressions": [expression]},
                "timeoutSeconds": 10,
            }
            for name, expression in mine
        ],
    }


def _injection_selectors(
    values: Values, names: InstallationNames
) -> list[tuple[str, list[dict[str, Any]], list[dict[str, Any]]]]:
    """Return a tuple for each webhook: its name, its requirements for the namespace's labels, and its requirements
    for the pod's labels."""
    wanted, unlabelled = _not_in(_INJECT, "false"), [_absent(_ENABLED), _absent(REVISION)]
    webhooks = [
        ("rev.namespace", [_in(REVISION, names.revision), _absent(_ENABLED)], [wanted]),
        ("rev.object", unlabelled, [wanted, _in(REVISION, names.revision)]),
    ]
    if names.is_default:
        webhooks += [
            ("namespace", [_in(_ENABLED, "enabled")], [wanted]),
            ("object", unlabelled, [_in(_INJECT, "true"), _absent(REVISION)]),
        ]
        if values.injection.by_default:
            webhooks.append(("auto", unlabelled, [_absent(_INJECT), _absent(REVISION)]))
    return webhooks


def _injection_webhook(
    values: Values, name: str, namespaces: list[dict[str, Any]], pods: list[dict[str, Any]]
) -> dict[str, Any]:
    names = InstallationNames.of(values)
    left_alone = _not_in(_NAMESPACE, *values.injection.excluded_namespaces)
    return {
        **_webhook(names, f"{name}.sidecar-injector.istio.io", "/inject", values.injection.failure_policy),
        "rules": [
            {
                "apiGroups": [""],
                "apiVersions": ["v1"],
                "operations": ["CREATE"],
                "resources": ["pods"],
                "scope": "Namespaced",
            }
        ],
        "namespaceSelector": {"matchExpressions": [*namespaces, left_alone]},
        "objectSelector": {"matchExpressions": pods},
        "reinvocationPolicy": "IfNeeded",  # another webhook may add containers after the injector was called
        "timeoutSeconds": 10,
    }


def _webhook(names: InstallationNames, name: str, path: str, failure_policy: str) -> dict[str, Any]:
    service = {"name": names.service, "namespace": names.namespace, "path": path, "port": 443}
    return {
        "name": name,
        "clientConfig": {"service": service},
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": failure_policy,
        "matchPolicy": "Equivalent",
    }


def _in(key: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": "In", "values": list(values)}


def _not_in(key: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": "NotIn", "values": list(values)}


def _absent(key: str) -> dict[str, Any]:
    return {"key": key, "operator": "DoesNotExist"}
