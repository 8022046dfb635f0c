"""Converts weft's Workloads to Kubernetes objects: what `weft up` starts as processes becomes Deployments, Jobs and
their ServiceAccounts.

Input: a Workload and the files of its working directory. Output: Kubernetes objects. Rule: only Workloads are
converted. All other objects of a mesh, such as VirtualServices, mean the same with and without Kubernetes and are not
changed.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping
from typing import Any

from weft.model.proxy import GATEWAY_TEMPLATE
from weft.model.workload import ExecProbe, HttpProbe, Probe, RestartPolicy, Workload

PROGRAMS = "/programs"  # path of the working directory in a pod
INJECTION = {"istio-injection": "enabled"}
MOST_BYTES = 900_000  # of all files of a directory; a ConfigMap holds at most 1 MiB

_INJECT = "sidecar.istio.io/inject"
_TRAFFIC = "traffic.sidecar.istio.io"

Object = dict[str, Any]


def namespace(name: str, labels: Mapping[str, str]) -> Object:
    """Return a Namespace with the label that injects proxies into its pods. If `labels` already has an injection or
    revision label, that label decides instead."""
    spoken = any(label in labels for label in ("istio-injection", "istio.io/rev"))
    return _object("v1", "Namespace", {"name": name, "labels": dict(labels) if spoken else {**INJECTION, **labels}})


def account(workload: Workload) -> Object:
    return _object("v1", "ServiceAccount", {"name": workload.service_account, "namespace": workload.namespace})


def programs(workload: Workload, files: Mapping[str, str]) -> Object:
    """Return a ConfigMap with the files of a working directory, for the namespace of `workload`. Its name ends with a
    hash of the files, so that workloads of a namespace with the same files share it."""
    content = "\0".join(part for name in sorted(files) for part in (name, files[name]))
    name = f"programs-{hashlib.sha256(content.encode()).hexdigest()[:10]}"
    return _object("v1", "ConfigMap", {"name": name, "namespace": workload.namespace}) | {"data": dict(files)}


def running(workload: Workload, image: str, files: str) -> Object:
    """Return the Deployment of a workload, or a Job if the workload's restart policy is not `Always`. `image`: the
    container image in which the workload's command runs. `files` is the name of the ConfigMap with the workload's
    files."""
    metadata = {"name": workload.name, "namespace": workload.namespace, "labels": dict(workload.labels)}
    template = {"metadata": _pod_metadata(workload), "spec": _pod(workload, image, files)}
    if workload.restart is RestartPolicy.ALWAYS:
        spec = {
            "replicas": workload.replicas,
            "selector": {"matchLabels": dict(workload.labels)},
            "template": template,
        }
        return _object("apps/v1", "Deployment", metadata) | {"spec": spec}
    template["spec"]["restartPolicy"] = workload.restart.value
    return _object("batch/v1", "Job", metadata) | {
        "spec": {"parallelism": workload.replicas, "completions": workload.replicas, "template": template}
    }


def gateway(workload: Workload) -> list[Object]:
    """Return the Deployment of a gateway, which the injector completes. If the gateway publishes ports, also return a
    LoadBalancer Service for callers outside the cluster."""
    named = {"name": workload.name, "namespace": workload.namespace, "labels": dict(workload.labels)}
    container = {
        "name": "istio-proxy",
        "image": "auto",  # replaced by the injector
        "ports": [
            {"containerPort": port.number} | ({"name": port.name} if port.name else {}) for port in workload.ports
        ],
    }
    template = {
        "metadata": {
            "labels": {**dict(workload.labels), _INJECT: "true"},
            "annotations": {**dict(workload.annotations), "inject.istio.io/templates": GATEWAY_TEMPLATE},
        },
        "spec": {"serviceAccountName": workload.service_account, "containers": [container]},
    }
    selector = dict(workload.labels)
    spec = {"replicas": workload.replicas, "selector": {"matchLabels": selector}, "template": template}
    objects = [_object("apps/v1", "Deployment", named) | {"spec": spec}]
    if workload.publish:
        ports = [{"name": f"tcp-{e.host_port}", "port": e.host_port, "targetPort": e.port} for e in workload.publish]
        service = _object("v1", "Service", {**named, "name": f"{workload.name}-published"})
        objects.append(service | {"spec": {"type": "LoadBalancer", "selector": selector, "ports": ports}})
    return objects


def _object(version: str, kind: str, metadata: Object) -> Object:
    return {"apiVersion": version, "kind": kind, "metadata": metadata}


def _pod_metadata(workload: Workload) -> Object:
    labels = dict(workload.labels)
    if not workload.inject:
        labels[_INJECT] = "false"
    annotations = {name: value for name, value in workload.annotations if name != _INJECT} | _traffic(workload)
    return {"labels": labels} | ({"annotations": annotations} if annotations else {})


def _traffic(workload: Workload) -> dict[str, str]:
    """Return the `traffic.sidecar.istio.io/…` annotations for a workload's pods, built from the workload's fields.
    Those fields already include the values of the workload's own traffic annotations."""
    traffic = {
        "includeInboundPorts": "" if workload.include_inbound_ports == "*" else workload.include_inbound_ports,
        "excludeInboundPorts": _joined(workload.exclude_inbound_ports),
        "includeOutboundPorts": _joined(workload.include_outbound_ports),
        "excludeOutboundPorts": _joined(workload.exclude_outbound_ports),
        "includeOutboundIPRanges": "" if workload.include_outbound_ranges == "*" else workload.include_outbound_ranges,
        "excludeOutboundIPRanges": _joined(workload.exclude_outbound_ranges),
    }
    return {f"{_TRAFFIC}/{name}": value for name, value in traffic.items() if value}


def _joined(values: Iterable[object]) -> str:
    return ",".join(map(str, values))


def _pod(workload: Workload, image: str, files: str) -> Object:
    names = [("POD_NAME", "metadata.name")]
    container: Object = {
        "name": "app",
        "image": image,
        "command": list(workload.command),
        "workingDir": PROGRAMS,
        "env": [
            *({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in names),
            *({"name": name, "value": value} for name, value in workload.environment),
        ],
        "ports": [
            {"containerPort": port.number} | ({"name": port.name} if port.name else {}) for port in workload.ports
        ],
        "volumeMounts": [{"name": "programs", "mountPath": PROGRAMS, "readOnly": True}],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "runAsNonRoot": True,
            "runAsUser": 10_000,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }
    if workload.readiness is not None:
        container["readinessProbe"] = _probe(workload.readiness)
    return {
        "serviceAccountName": workload.service_account,
        "containers": [container],
        "volumes": [{"name": "programs", "configMap": {"name": files}}],
    }


def _probe(probe: Probe) -> Object:
    check = probe.check
    if isinstance(check, HttpProbe):
        headers = [{"name": name, "value": value} for name, value in check.headers]
        action: Object = {"httpGet": {"path": check.path, "port": check.port, "scheme": check.scheme}}
        if headers:
            action["httpGet"]["httpHeaders"] = headers
    elif isinstance(check, ExecProbe):
        action = {"exec": {"command": list(check.command)}}
    else:
        action = {"tcpSocket": {"port": check.port}}
    return action | {
        # Kubernetes counts whole seconds.
        "initialDelaySeconds": math.ceil(probe.initial_delay.total_seconds()),
        "periodSeconds": max(1, math.ceil(probe.period.total_seconds())),
        "timeoutSeconds": max(1, math.ceil(probe.timeout.total_seconds())),
        "successThreshold": probe.success_threshold,
        "failureThreshold": probe.failure_threshold,
    }
