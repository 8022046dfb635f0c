"""The containers that injection adds to a pod: the init container that sets up the redirect or requests it from the
node's agent, and the proxy.

Both need as few privileges as possible. The proxy is allowed under pod security `restricted`; with `redirectBy: node`,
all added containers are. A native sidecar with `redirectBy: node` needs no init container: its postStart hook requests
the redirect from the node's agent.
"""

from __future__ import annotations

from typing import Any

from weft.inject import redirect
from weft.inject.annotations import Wishes
from weft.inject.duration import seconds_of
from weft.inject.settings import InjectionSettings, ProxyResources
from weft.model.proxy import (
    IDENTITY_MOUNT,
    IDENTITY_VOLUME,
    PROMETHEUS_PORT,
    PROXY_GID,
    PROXY_UID,
    READINESS_PORT,
)

PROXY, INIT, VALIDATION = "istio-proxy", "istio-init", "istio-validation"
PROBERS = "ISTIO_KUBE_APP_PROBERS"
# Set anew at each injection; any other variable of the container may have been set by another webhook.
OWN_VARIABLES = frozenset({"ISTIO_META_APP_CONTAINERS", "ISTIO_META_POD_PORTS", PROBERS})

_SECCOMP = {"seccompProfile": {"type": "RuntimeDefault"}}
_USER = {"runAsUser": PROXY_UID, "runAsGroup": PROXY_GID, "runAsNonRoot": True}
_SOCKETS = {"name": IDENTITY_VOLUME, "mountPath": IDENTITY_MOUNT, "readOnly": True}
_FROM_POD = {
    "POD_NAME": "metadata.name",
    "POD_NAMESPACE": "metadata.namespace",
    "INSTANCE_IP": "status.podIP",
    "INSTANCE_IPS": "status.podIPs",
    "HOST_IP": "status.hostIP",
    "SERVICE_ACCOUNT": "spec.serviceAccountName",
    "ISTIO_META_NODE_NAME": "spec.nodeName",
    "ISTIO_META_POD_NAME": "metadata.name",
    "ISTIO_META_NAMESPACE": "metadata.namespace",
}


def asks_by_hook(wishes: Wishes, settings: InjectionSettings, *, native: bool) -> bool:
    """Return whether the proxy's postStart hook requests the redirect from the node's agent. Only the hook of a native
    sidecar does: if it fails, kubelet starts no later container. If the hook of an ordinary container fails, kubelet
    starts the next container anyway, so an init container requests the redirect instead. `wishes`: the sidecar settings
    of the pod."""
    return native and wishes.redirected and settings.redirect_by == "node"


def redirecting(wishes: Wishes, settings: InjectionSettings) -> dict[str, Any]:
    """Return the init container istio-init, which installs the redirect. With `redirectBy: node` return
    istio-validation instead, which requests the redirect from the node's agent and ends once the redirect is installed.
    `wishes`: the sidecar settings of the pod."""
    by_node = settings.redirect_by == "node"
    wanted = redirect.arguments(wishes.redirection, status_port=wishes.status_port)
    root = {"runAsUser": 0, "runAsGroup": 0, "runAsNonRoot": False}
    capabilities = {"drop": ["ALL"]} if by_node else {"add": ["NET_ADMIN", "NET_RAW"], "drop": ["ALL"]}
    return {
        "name": VALIDATION if by_node else INIT,
        **_image(wishes, settings),
        "args": ["redirect" if by_node else "iptables", *wanted],
        "terminationMessagePolicy": "FallbackToLogsOnError",  # `kubectl describe pod` shows why it failed
        "resources": _resources(settings.init_resources),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "privileged": False,
            "capabilities": capabilities,
            "readOnlyRootFilesystem": True,
            **(_USER if by_node else root),
            **_SECCOMP,
        },
        **({"volumeMounts": [_SOCKETS]} if by_node else {}),
    }


def proxy(
    wishes: Wishes,
    settings: InjectionSettings,
    *,
    arguments: list[str],
    variables: dict[str, str],
    native: bool,
    finishes: bool,
    gateway: bool = False,
) -> dict[str, Any]:
    """Return the proxy's container. `wishes`: the sidecar settings of the pod. `arguments` are those of Envoy,
    `variables` its environment. `native`: the container is a native sidecar. `finishes`: the pod's application runs to
    completion, as in a Job; then the preStop hook does not wait for callers before the proxy ends. `gateway`: the
    container is that of a gateway."""
    ready = {"httpGet": {"path": "/healthz/ready", "port": READINESS_PORT, "scheme": "HTTP"}, "timeoutSeconds": 3}
    lifecycle: dict[str, Any] = {"preStop": {"exec": {"command": _drain(wishes, finishes=finishes, gateway=gateway)}}}
    container: dict[str, Any] = {
        "name": PROXY,
        **_image(wishes, settings),
        "command": ["envoy"],
        "args": arguments,
        "ports": [{"containerPort": PROMETHEUS_PORT, "name": "http-envoy-prom", "protocol": "TCP"}],
        "env": [
            *({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in _FROM_POD.items()),
            *({"name": name, "value": value} for name, value in variables.items()),
        ],
        "lifecycle": lifecycle,
        "readinessProbe": {
            **ready,
            **({} if not wishes.readiness["initialDelaySeconds"] else
               {"initialDelaySeconds": wishes.readiness["initialDelaySeconds"]}),
            "periodSeconds": max(1, wishes.readiness["periodSeconds"]),
            "failureThreshold": max(1, wishes.readiness["failureThreshold"]),
        },
        "resources": _resources(wishes.resources),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "privileged": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
            **_USER,
            **_SECCOMP,
        },
        "volumeMounts": [_SOCKETS, *wishes.mounts],
    }  # fmt: skip
    if native:
        container["restartPolicy"] = "Always"
    if native or wishes.hold:
        # The next containers wait for this hook. A startup probe would also work, but kubelet syncs containers once a
        # second, and acts on a probe's result only at the next sync.
        lifecycle["postStart"] = {"exec": {"command": _wait(wishes, settings, native=native)}}
    return container


def _wait(wishes: Wishes, settings: InjectionSettings, *, native: bool) -> list[str]:
    if not asks_by_hook(wishes, settings, native=native):
        return ["weft", "wait"]
    return ["weft", "wait", "--redirect", *redirect.arguments(wishes.redirection, status_port=wishes.status_port)]


def _drain(wishes: Wishes, *, finishes: bool, gateway: bool) -> list[str]:
    """Return the command of the proxy's preStop hook: it drains the inbound listeners of a sidecar, or all listeners of
    a gateway. `wishes`: the sidecar settings of the pod. `finishes`: as for `proxy`."""
    metadata = wishes.environment
    command = ["weft", "drain", *(["--gateway"] if gateway else [])]
    if metadata.get("EXIT_ON_ZERO_ACTIVE_CONNECTIONS", "").lower() == "true":
        minimum = seconds_of(metadata.get("MINIMUM_DRAIN_DURATION", "5s"))
        return [*command, "--until-idle", f"{5 if minimum is None else minimum:g}s"]
    return [*command, "0s" if finishes else f"{wishes.termination_seconds:g}s"]


def _image(wishes: Wishes, settings: InjectionSettings) -> dict[str, str]:
    policy = settings.image_pull_policy
    return {"image": wishes.image, **({"imagePullPolicy": policy} if policy else {})}


def _resources(resources: ProxyResources) -> dict[str, dict[str, str]]:
    quantities = {"requests": dict(resources.requests), "limits": dict(resources.limits)}
    return {kind: amounts for kind, amounts in quantities.items() if amounts}
