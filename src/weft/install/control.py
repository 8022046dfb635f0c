"""The control plane's objects: ServiceAccount, Deployment, Service and PodDisruptionBudget. Its pod complies with pod
security `restricted`."""

from __future__ import annotations

from typing import Any

from weft.install.names import MONITORING_PORT, REVISION, SECURE_PORT, WEBHOOK_PORT, XDS_PORT, InstallationNames
from weft.install.values import Values
from weft.model.proxy import PROXY_GID, PROXY_UID

CA_DIRECTORY = "/etc/cacerts"  # where the Secret of the user's own CA is mounted, if it exists

_PLAINTEXT_XDS = ("grpc-xds", XDS_PORT, XDS_PORT)
_PORTS = (
    ("https-dns", SECURE_PORT, SECURE_PORT),
    ("https-webhook", 443, WEBHOOK_PORT),
    ("http-monitoring", MONITORING_PORT, MONITORING_PORT),
)


def arguments(values: Values) -> list[str]:
    """Return all command-line arguments of the control plane. The control plane reads all other settings from objects
    in its namespace."""
    return [
        "control",
        "--kubernetes",
        f"--namespace={values.namespace}",
        f"--revision={values.revision}",
        f"--domain={values.cluster_domain}",
        f"--log-level={values.control.log_level}",
        f"--ca={CA_DIRECTORY}",
        *(["--listen=[::]:15010"] if values.control.plaintext_xds else []),
    ]


def service_account(values: Values) -> dict[str, Any]:
    names = InstallationNames.of(values)
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": names.metadata(names.control),
        "automountServiceAccountToken": False,  # the pod that needs a token sets this itself
        **_pull_secrets(values),
    }


# istioctl finds the control plane by the label `app`, and `istioctl analyze` does not check objects with the label
# `istio` like applications.
def service(values: Values) -> dict[str, Any]:
    names = InstallationNames.of(values)
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": names.metadata(names.service, app="istiod", istio="pilot"),
        "spec": {
            "selector": _selector(names),
            "ports": [
                {"name": name, "port": port, "targetPort": target, "protocol": "TCP"}
                for name, port, target in _ports(values)
            ],
        },
    }


def budget(values: Values) -> dict[str, Any]:
    names = InstallationNames.of(values)
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": names.metadata(names.control, app="istiod"),
        "spec": {"minAvailable": 1, "selector": {"matchLabels": _selector(names)}},
    }


def deployment(values: Values) -> dict[str, Any]:
    names = InstallationNames.of(values)
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": names.metadata(names.control, app="istiod", istio="pilot"),
        "spec": {
            "replicas": values.control.replicas,
            # No replica ends before its replacement is ready: proxies and the API server can always reach one.
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "selector": {"matchLabels": _selector(names)},
            "template": {
                "metadata": {
                    "labels": {
                        **names.labels,
                        **_selector(names),
                        "istio": "pilot" if names.is_default else "istiod",
                        "sidecar.istio.io/inject": "false",
                    },
                    "annotations": {
                        "prometheus.io/port": str(MONITORING_PORT),
                        "prometheus.io/scrape": "true",
                        **values.control.annotations,
                    },
                },
                "spec": _pod(values, names),
            },
        },
    }


def _ports(values: Values) -> tuple[tuple[str, int, int], ...]:
    """Return the name, the Service's port and the pod's port of every port that other pods can connect to. Without
    `plaintextXds`, port 15010 listens on the pod's loopback interface only."""
    return (_PLAINTEXT_XDS, *_PORTS) if values.control.plaintext_xds else _PORTS


def _selector(names: InstallationNames) -> dict[str, str]:
    return {"app": "istiod", REVISION: names.revision}


def _pod(values: Values, names: InstallationNames) -> dict[str, Any]:
    control = values.control
    spec: dict[str, Any] = {
        "serviceAccountName": names.control,
        "automountServiceAccountToken": True,
        "priorityClassName": control.priority_class,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": PROXY_UID,
            "runAsGroup": PROXY_GID,
            "fsGroup": PROXY_GID,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(values)],
        "topologySpreadConstraints": [_spread(names, key) for key in ("kubernetes.io/hostname", ZONE)],
        "volumes": [
            {"name": "tmp", "emptyDir": {"sizeLimit": "64Mi"}},
            {"name": "cacerts", "secret": {"secretName": values.ca.secret, "optional": True, "defaultMode": 0o440}},
        ],
    }
    if control.node_selector:
        spec["nodeSelector"] = dict(control.node_selector)
    if control.tolerations:
        spec["tolerations"] = [dict(each) for each in control.tolerations]
    return spec


ZONE = "topology.kubernetes.io/zone"


def _spread(names: InstallationNames, key: str) -> dict[str, Any]:
    """Return a topologySpreadConstraint that spreads the control plane's replicas over the values of the node label
    `key`, such as the zone. It is only a preference, because a cluster with one node must still run all replicas."""
    return {
        "maxSkew": 1,
        "topologyKey": key,
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": _selector(names)},
        "matchLabelKeys": ["pod-template-hash"],
    }


def _container(values: Values) -> dict[str, Any]:
    return {
        "name": "discovery",
        "image": values.image,
        "imagePullPolicy": values.image_pull_policy,
        "args": arguments(values),
        "env": [
            from_field("POD_NAME", "metadata.name"),
            from_field("POD_NAMESPACE", "metadata.namespace"),
            from_field("POD_IP", "status.podIP"),
            from_field("NODE_NAME", "spec.nodeName"),
        ],
        "ports": [{"name": name, "containerPort": target, "protocol": "TCP"} for name, _, target in _ports(values)],
        "startupProbe": probe("/healthz", period=1, failures=60),
        "livenessProbe": probe("/healthz", period=10, failures=6),
        "readinessProbe": probe("/ready", period=3, failures=3),
        "resources": resources(values.control.resources),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "tmp", "mountPath": "/tmp"},
            {"name": "cacerts", "mountPath": CA_DIRECTORY, "readOnly": True},
        ],
    }


def probe(path: str, *, period: int, failures: int) -> dict[str, Any]:
    return {
        "httpGet": {"path": path, "port": MONITORING_PORT},
        "periodSeconds": period,
        "timeoutSeconds": 5,
        "failureThreshold": failures,
    }


def from_field(name: str, path: str) -> dict[str, Any]:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def resources(chosen: Any) -> dict[str, Any]:
    return {"requests": dict(chosen.requests), "limits": dict(chosen.limits)}


def _pull_secrets(values: Values) -> dict[str, Any]:
    secrets = [{"name": name} for name in values.image_pull_secrets]
    return {"imagePullSecrets": secrets} if secrets else {}
