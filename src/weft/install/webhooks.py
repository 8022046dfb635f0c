"""When the API server asks weft: about new pods that may want a proxy, and about resources that somebody writes.

The selectors are Istio's truth table, as far as labels decide; the rest is decided in the webhook. Their names are
Istio's, too. The `caBundle` is left out: the control plane puts it there and keeps it, and applying these objects again
does not take it away. Rule: nothing here may ever stop a pod of the cluster's own namespaces."""

from __future__ import annotations

from typing import Any

from weft.install.crds import DEFINITIONS
from weft.install.names import REVISION, InstallationNames
from weft.install.values import Values

_INJECT, _ENABLED = "sidecar.istio.io/inject", "istio-injection"
_NAMESPACE = "kubernetes.io/metadata.name"  # every namespace has it, set by the API server


def webhooks(values: Values) -> list[dict[str, Any]]:
    return [injector(values), *([validator(values)] if values.validation.enabled else [])]


def injector(values: Values) -> dict[str, Any]:
    names = InstallationNames.of(values)
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": names.metadata(names.injector, namespaced=False, app="sidecar-injector"),
        "webhooks": [
            _injecting(values, name, namespaces, pods) for name, namespaces, pods in _questions(values, names)
        ],
    }


def validator(values: Values) -> dict[str, Any]:
    """An object that names a revision is judged by that one; all others by the default revision."""
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
                **_asking(names, name, "/validate", values.validation.failure_policy),
                "rules": rules,
                "objectSelector": {"matchExpressions": [expression]},
                "timeoutSeconds": 10,
            }
            for name, expression in mine
        ],
    }


def _questions(
    values: Values, names: InstallationNames
) -> list[tuple[str, list[dict[str, Any]], list[dict[str, Any]]]]:
    """Each with what the namespace's labels must say, and what the pod's."""
    wanted, unasked = _not_in(_INJECT, "false"), [_absent(_ENABLED), _absent(REVISION)]
    found = [
        ("rev.namespace", [_in(REVISION, names.revision), _absent(_ENABLED)], [wanted]),
        ("rev.object", unasked, [wanted, _in(REVISION, names.revision)]),
    ]
    if names.is_default:
        found += [
            ("namespace", [_in(_ENABLED, "enabled")], [wanted]),
            ("object", unasked, [_in(_INJECT, "true"), _absent(REVISION)]),
        ]
        if values.injection.by_default:
            found.append(("auto", unasked, [_absent(_INJECT), _absent(REVISION)]))
    return found


def _injecting(
    values: Values, name: str, namespaces: list[dict[str, Any]], pods: list[dict[str, Any]]
) -> dict[str, Any]:
    names = InstallationNames.of(values)
    left_alone = _not_in(_NAMESPACE, *values.injection.excluded_namespaces)
    return {
        **_asking(names, f"{name}.sidecar-injector.istio.io", "/inject", values.injection.failure_policy),
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
        "reinvocationPolicy": "IfNeeded",  # another webhook may add containers after ours was asked
        "timeoutSeconds": 10,
    }


def _asking(names: InstallationNames, name: str, path: str, failure_policy: str) -> dict[str, Any]:
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
