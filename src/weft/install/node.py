"""The node agent's objects: ServiceAccount, DaemonSet and CSIDriver. The agent is not privileged: it creates sockets in
kubelet's directories, for which three capabilities are enough (docs/kubernetes.md). It gets more capabilities only if
it also installs the redirects of pods, because it then enters their network namespaces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from weft.install.control import from_field, probe, resources
from weft.install.names import MONITORING_PORT, SECURE_PORT, InstallationNames
from weft.install.values import Values
from weft.model.proxy import ROOT_CONFIG_MAP

AUDIENCE = "istio-ca"
TOKEN_DIRECTORY = "/var/run/secrets/tokens"  # noqa: S105
TOKEN_FILE = f"{TOKEN_DIRECTORY}/istio-token"
ROOT_DIRECTORY = "/var/run/secrets/istio"
STATE_DIRECTORY = "/run/weft"  # on the node: a tmpfs, empty after a reboot

_CAPABILITIES = ("CHOWN", "DAC_OVERRIDE", "FOWNER")
_REDIRECT_CAPABILITIES = ("NET_ADMIN", "NET_RAW", "SYS_ADMIN", "SYS_PTRACE")


def arguments(values: Values) -> list[str]:
    """Return all arguments of the node agent."""
    names = InstallationNames.of(values)
    return [
        "node",
        "--kubernetes",
        f"--control={names.service_host}:{SECURE_PORT}",
        f"--ca-root={ROOT_DIRECTORY}/root-cert.pem",
        f"--token={TOKEN_FILE}",
        f"--driver-name={names.driver}",
        f"--kubelet-root={values.node.kubelet_root}",
        f"--certificate-ttl={values.node.certificate_ttl}",
        f"--state={state_directory(values)}",
        f"--log-level={values.node.log_level}",
        f"--health=:{MONITORING_PORT}",
        *([f"--trust-domain={values.mesh['trustDomain']}"] if values.mesh.get("trustDomain") else []),
        *(["--redirect"] if redirects(values) else []),
    ]


def redirects(values: Values) -> bool:
    return values.injection.redirect_by == "node"


def state_directory(values: Values) -> str:
    return f"{STATE_DIRECTORY}/{values.revision}"


def service_account(values: Values) -> dict[str, Any]:
    """Return the agent's ServiceAccount. It has no role: the agent never calls the API server."""
    names = InstallationNames.of(values)
    account: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": names.metadata(names.node),
        "automountServiceAccountToken": False,
    }
    secrets = [{"name": name} for name in values.image_pull_secrets]
    return {**account, "imagePullSecrets": secrets} if secrets else account


def csi_driver(values: Values) -> dict[str, Any]:
    names = InstallationNames.of(values)
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIDriver",
        "metadata": names.metadata(names.driver, namespaced=False),
        "spec": {
            "attachRequired": False,
            "podInfoOnMount": True,
            "fsGroupPolicy": "None",
            "volumeLifecycleModes": ["Ephemeral"],
            "tokenRequests": [{"audience": AUDIENCE}],
            "requiresRepublish": True,  # kubelet then sends a new token before the old one expires
        },
    }


def daemon_set(values: Values) -> dict[str, Any]:
    names = InstallationNames.of(values)
    chosen = {"app": "weft-node", "istio.io/rev": values.revision}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": names.metadata(names.node, app="weft-node"),
        "spec": {
            "selector": {"matchLabels": chosen},
            "updateStrategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxUnavailable": values.node.max_unavailable},
            },
            "template": {
                "metadata": {
                    "labels": {**names.labels, **chosen, "sidecar.istio.io/inject": "false"},
                    "annotations": dict(values.node.annotations),
                },
                "spec": _pod(values, names),
            },
        },
    }


def directories(agent: Mapping[str, Any]) -> list[str]:
    """Return the directories that the agents of a DaemonSet (as installed on a cluster) created on their nodes: for
    their state, and for the CSI driver's socket."""
    volumes = agent["spec"]["template"]["spec"].get("volumes") or ()
    paths = {each["name"]: each["hostPath"]["path"] for each in volumes if "hostPath" in each}
    return [paths[name] for name in ("state", "plugin") if name in paths]


def cleanup(agent: Mapping[str, Any], image_pull_secrets: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return a DaemonSet that removes the directories of a removed agent from its nodes, and then waits. It has the
    image and the nodes of `agent`, the removed DaemonSet. It mounts the parents of these directories, because a mount
    itself cannot be removed, and `/run` in order to remove also an empty STATE_DIRECTORY."""
    template = agent["spec"]["template"]["spec"]
    own = template["containers"][0]
    removed, mounts, volumes = [], [], []
    for number, path in enumerate(map(PurePosixPath, directories(agent))):
        is_state = PurePosixPath(STATE_DIRECTORY) in path.parents
        mounted = PurePosixPath(STATE_DIRECTORY).parent if is_state else path.parent
        place = f"/host/{number}"
        removed.append(f"{place}/{path.relative_to(mounted)}")
        volumes.append(_host_path(f"host-{number}", str(mounted), "Directory"))
        mounts.append({"name": f"host-{number}", "mountPath": place})
    state = f"/host/0/{PurePosixPath(STATE_DIRECTORY).name}"
    metadata = agent["metadata"]
    labels = {**metadata["labels"], "app": "weft-node-cleanup"}
    container = {
        "image": own["image"],
        "imagePullPolicy": own.get("imagePullPolicy", "IfNotPresent"),
        "resources": own.get("resources", {}),
        "securityContext": {
            "runAsUser": 0,
            "runAsGroup": 0,
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {
            "name": f"{metadata['name']}-cleanup",
            "namespace": metadata["namespace"],
            "labels": labels,
        },
        "spec": {
            "selector": {"matchLabels": {"app": labels["app"], "istio.io/rev": labels["istio.io/rev"]}},
            "template": {
                "metadata": {"labels": {**labels, "sidecar.istio.io/inject": "false"}},
                "spec": {
                    "automountServiceAccountToken": False,
                    "imagePullSecrets": [dict(each) for each in image_pull_secrets],
                    "nodeSelector": dict(template.get("nodeSelector") or {}),
                    "tolerations": [dict(each) for each in template.get("tolerations") or ()],
                    "priorityClassName": template.get("priorityClassName", ""),
                    "terminationGracePeriodSeconds": 5,
                    "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
                    "initContainers": [
                        {
                            "name": "clean",
                            "args": ["clean", *removed, "--if-empty", state],
                            "volumeMounts": mounts,
                            **container,
                        }
                    ],
                    "containers": [{"name": "done", "args": ["clean", "--done"], **container}],
                    "volumes": volumes,
                },
            },
        },
    }


def _pod(values: Values, names: InstallationNames) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "serviceAccountName": names.node,
        "automountServiceAccountToken": False,
        "priorityClassName": values.node.priority_class,
        "nodeSelector": {"kubernetes.io/os": "linux", **values.node.node_selector},
        "tolerations": [dict(each) for each in values.node.tolerations],
        "terminationGracePeriodSeconds": 10,
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [_container(values)],
        "volumes": _volumes(values),
    }
    if redirects(values):
        spec["hostPID"] = True  # the agent identifies the caller of a redirect by its PID
    return spec


def _container(values: Values) -> dict[str, Any]:
    capabilities = [*_CAPABILITIES, *(_REDIRECT_CAPABILITIES if redirects(values) else ())]
    return {
        "name": "agent",
        "image": values.image,
        "imagePullPolicy": values.image_pull_policy,
        "args": arguments(values),
        "env": [
            from_field("NODE_NAME", "spec.nodeName"),
            from_field("POD_NAME", "metadata.name"),
            from_field("POD_NAMESPACE", "metadata.namespace"),
            from_field("POD_UID", "metadata.uid"),
        ],
        "ports": [{"name": "http-monitoring", "containerPort": MONITORING_PORT, "protocol": "TCP"}],
        "livenessProbe": probe("/healthz", period=10, failures=6),
        "readinessProbe": probe("/ready", period=2, failures=5),
        "resources": resources(values.node.resources),
        "securityContext": {
            "runAsUser": 0,
            "runAsGroup": 0,
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"], "add": capabilities},
        },
        "volumeMounts": [
            {"name": "plugin", "mountPath": _plugin(values)},
            {"name": "registration", "mountPath": _registry(values)},
            {"name": "pods", "mountPath": _pods(values)},
            {"name": "state", "mountPath": state_directory(values)},
            {"name": "token", "mountPath": TOKEN_DIRECTORY, "readOnly": True},
            {"name": "root", "mountPath": ROOT_DIRECTORY, "readOnly": True},
            {"name": "tmp", "mountPath": "/tmp"},
        ],
    }


def _volumes(values: Values) -> list[dict[str, Any]]:
    token = {"path": "istio-token", "audience": AUDIENCE, "expirationSeconds": 43_200}
    return [
        _host_path("plugin", _plugin(values), "DirectoryOrCreate"),
        _host_path("registration", _registry(values), "Directory"),
        _host_path("pods", _pods(values), "Directory"),
        _host_path("state", state_directory(values), "DirectoryOrCreate"),
        {"name": "token", "projected": {"defaultMode": 0o400, "sources": [{"serviceAccountToken": token}]}},
        # Not optional: the agent must not start without the roots to trust.
        {"name": "root", "configMap": {"name": ROOT_CONFIG_MAP, "defaultMode": 0o444}},
        {"name": "tmp", "emptyDir": {"sizeLimit": "64Mi"}},
    ]


def _host_path(name: str, path: str, type_: str) -> dict[str, Any]:
    return {"name": name, "hostPath": {"path": path, "type": type_}}


def _plugin(values: Values) -> str:
    return f"{values.node.kubelet_root}/plugins/{InstallationNames.of(values).driver}"


def _registry(values: Values) -> str:
    return f"{values.node.kubelet_root}/plugins_registry"


def _pods(values: Values) -> str:
    return f"{values.node.kubelet_root}/pods"
