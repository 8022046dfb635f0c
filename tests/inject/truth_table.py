"""Injection's truth table as data, for tests of the decision alone and of a real API server with a real webhook.

A case has a namespace with labels, a pod with labels, annotations and spec, and the settings that differ from the
defaults. It states whether the pod is injected, and words of the reason. `revision` is the installed revision.
"""

from __future__ import annotations

from typing import Any

import msgspec

NAMESPACE = "istio-injection"
REVISION = "istio.io/rev"
INJECT = "sidecar.istio.io/inject"


class Case(msgspec.Struct, frozen=True):
    name: str
    injected: bool
    reason: str  # words that the reason contains
    namespace_labels: dict[str, str] = {}
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    spec: dict[str, Any] = {}
    settings: dict[str, Any] = {}
    revision: str = "default"
    namespace: str = ""  # empty: any name without a special meaning

    def __str__(self) -> str:
        return self.name


ENABLED = {NAMESPACE: "enabled"}
DISABLED = {NAMESPACE: "disabled"}
NEVER = {"neverInjectSelector": [{"matchLabels": {"job": "build"}}]}
ALWAYS = {"autoInject": False, "alwaysInjectSelector": [{"matchExpressions": [{"key": "mesh", "operator": "Exists"}]}]}

CASES = (
    # The namespace's label.
    Case("namespace enabled", True, "enables injection", ENABLED),
    Case("namespace disabled", False, "istio-injection: disabled", DISABLED),
    Case("namespace without a label", False, "neither namespace"),
    Case("namespace with an unknown word", False, "neither enabled nor disabled", {NAMESPACE: "true"}),
    Case("namespace with an empty label", False, "neither enabled nor disabled", {NAMESPACE: ""}),
    Case("namespace with another label only", False, "neither namespace", {"team": "shop"}),
    # The pod's label.
    Case("enabled, label true", True, "label sidecar.istio.io/inject is true", ENABLED, {INJECT: "true"}),
    Case("enabled, label false", False, "label sidecar.istio.io/inject is false", ENABLED, {INJECT: "false"}),
    Case("enabled, label yes", True, "is yes", ENABLED, {INJECT: "yes"}),
    Case("enabled, label y", True, "is y", ENABLED, {INJECT: "y"}),
    Case("enabled, label on", True, "is on", ENABLED, {INJECT: "on"}),
    Case("enabled, label True", True, "is True", ENABLED, {INJECT: "True"}),
    Case("enabled, label no", False, "is no", ENABLED, {INJECT: "no"}),
    Case("enabled, label False", False, "is False", ENABLED, {INJECT: "False"}),
    Case("enabled, label off", False, "is off", ENABLED, {INJECT: "off"}),
    Case("enabled, label nonsense", False, "is maybe", ENABLED, {INJECT: "maybe"}),
    Case("enabled, empty label", True, "enables injection", ENABLED, {INJECT: ""}),
    Case("disabled, label true", False, "istio-injection: disabled", DISABLED, {INJECT: "true"}),
    Case("no namespace label, label true", True, "is true", {}, {INJECT: "true"}),
    Case("no namespace label, label yes", False, "must be `true`", {}, {INJECT: "yes"}),
    Case("no namespace label, label false", False, "is false", {}, {INJECT: "false"}),
    # The older annotation.
    Case("enabled, annotation false", False, "annotation sidecar.istio.io/inject is false", ENABLED, {}, {INJECT: "false"}),
    Case("enabled, annotation true", True, "annotation sidecar.istio.io/inject is true", ENABLED, {}, {INJECT: "true"}),
    Case("enabled, annotation nonsense", False, "annotation", ENABLED, {}, {INJECT: "perhaps"}),
    Case("enabled, empty annotation", True, "enables injection", ENABLED, {}, {INJECT: ""}),
    Case("no namespace label, annotation true", False, "neither namespace", {}, {}, {INJECT: "true"}),
    Case("disabled, annotation true", False, "istio-injection: disabled", DISABLED, {}, {INJECT: "true"}),
    Case("label true beats annotation false", True, "label", ENABLED, {INJECT: "true"}, {INJECT: "false"}),
    Case("label no beats annotation true", False, "label", ENABLED, {INJECT: "no"}, {INJECT: "true"}),
    Case("empty label beats annotation false", True, "enables injection", ENABLED, {INJECT: ""}, {INJECT: "false"}),
    # Revisions.
    Case("namespace of revision default", True, "enables injection", {REVISION: "default"}),
    Case("namespace of another revision", False, "belongs to revision canary", {REVISION: "canary"}),
    Case("namespace of our revision", True, "enables injection", {REVISION: "canary"}, revision="canary"),
    Case("namespace of our revision, label false", False, "is false", {REVISION: "canary"}, {INJECT: "false"}, revision="canary"),
    Case("our revision, annotation false", False, "annotation", {REVISION: "canary"}, {}, {INJECT: "false"}, revision="canary"),
    Case("our revision, pod of another", True, "enables injection", {REVISION: "canary"}, {REVISION: "default"}, revision="canary"),
    Case("enabled belongs to the default revision", False, "belongs to revision default", ENABLED, revision="canary"),
    Case("enabled and a revision: the default injects", True, "enables injection", {**ENABLED, REVISION: "canary"}),
    Case("enabled and our revision: not ours", False, "belongs to revision default", {**ENABLED, REVISION: "canary"}, revision="canary"),
    Case("disabled beats the revision", False, "istio-injection: disabled", {**DISABLED, REVISION: "default"}),
    Case("pod of our revision", True, "enables injection", {}, {REVISION: "canary"}, revision="canary"),
    Case("pod of revision default", True, "enables injection", {}, {REVISION: "default"}),
    Case("pod of another revision", False, "names revision canary", {}, {REVISION: "canary"}),
    Case("pod of our revision, label false", False, "is false", {}, {REVISION: "canary", INJECT: "false"}, revision="canary"),
    Case("pod of our revision, label true", True, "is true", {}, {REVISION: "canary", INJECT: "true"}, revision="canary"),
    Case("pod of another revision, label true", False, "names revision canary", {}, {REVISION: "canary", INJECT: "true"}),
    Case("pod of our revision, namespace disabled", False, "disabled", DISABLED, {REVISION: "canary"}, revision="canary"),
    Case("enabled, pod of another revision: the namespace's injects", True, "enables injection", ENABLED, {REVISION: "canary"}),
    Case("label true alone is the default revision's", False, "neither namespace", {}, {INJECT: "true"}, revision="canary"),
    # Pods that cannot have a sidecar.
    Case("host network", False, "hostNetwork", ENABLED, spec={"hostNetwork": True}),
    Case("host network, label true", False, "hostNetwork", ENABLED, {INJECT: "true"}, spec={"hostNetwork": True}),
    Case("host network: false", True, "enables injection", ENABLED, spec={"hostNetwork": False}),
    Case("kube-system, enabled", False, "a system namespace of the cluster", ENABLED, namespace="kube-system"),
    Case("kube-system, label true", False, "a system namespace of the cluster", {}, {INJECT: "true"}, namespace="kube-system"),
    Case("kube-public, enabled", False, "a system namespace of the cluster", ENABLED, namespace="kube-public"),
    Case("kube-node-lease, enabled", False, "a system namespace of the cluster", ENABLED, namespace="kube-node-lease"),
    Case("local-path-storage, enabled", False, "a system namespace of the cluster", ENABLED, namespace="local-path-storage"),
    # Settings of the installation.
    Case("autoInject off", False, "autoInject is off", ENABLED, settings={"autoInject": False}),
    Case("autoInject off, label true", True, "is true", ENABLED, {INJECT: "true"}, settings={"autoInject": False}),
    Case("never selected", False, "neverInjectSelector (job is build)", ENABLED, {"job": "build"}, settings=NEVER),
    Case("never selected, others are", True, "enables injection", ENABLED, {"job": "test"}, settings=NEVER),
    Case("never selected, label true", True, "is true", ENABLED, {"job": "build", INJECT: "true"}, settings=NEVER),
    Case("always selected", True, "alwaysInjectSelector (mesh is set)", ENABLED, {"mesh": ""}, settings=ALWAYS),
    Case("always selected, annotation false", False, "annotation", ENABLED, {"mesh": ""}, {INJECT: "false"}, settings=ALWAYS),
    Case("never beats always", False, "neverInjectSelector", ENABLED, {"job": "build", "mesh": "x"}, settings={**NEVER, **ALWAYS}),
    Case("by default", True, "enables injection", settings={"enableNamespacesByDefault": True}),
    Case("by default, disabled", False, "disabled", DISABLED, settings={"enableNamespacesByDefault": True}),
    Case("by default, label false", False, "is false", {}, {INJECT: "false"}, settings={"enableNamespacesByDefault": True}),
    Case("by default, another revision", False, "revision canary", {REVISION: "canary"}, settings={"enableNamespacesByDefault": True}),
    Case("by default, kube-system", False, "a system namespace of the cluster", settings={"enableNamespacesByDefault": True}, namespace="kube-system"),
    Case("by default, the mesh's own", True, "enables injection", settings={"enableNamespacesByDefault": True}, namespace="istio-system"),
    Case("the mesh's own, label true", True, "is true", {}, {INJECT: "true"}, namespace="istio-system"),
)  # fmt: skip
