"""The YAML of the meshes under test, as functions: each returns one document, `text` joins them into a file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import yaml

APPS = Path(__file__).parent / "apps"
NAMESPACE = "shop"

Document = dict[str, Any]


def text(*documents: Document) -> str:
    return yaml.safe_dump_all(documents, sort_keys=False)


def workload(
    name: str,
    *,
    control: Path,
    serve: str = "",
    app: str = "",
    version: str = "v1",
    namespace: str = NAMESPACE,
    command: list[str] | None = None,
    environment: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
    ready_port: int | None = None,
    **spec: Any,
) -> Document:
    """A pod program (or `command`) with the servers listed in `serve`: `http=8080 echo=9000`."""
    ports = [int(item.partition("=")[2]) for item in serve.split()]
    body: Document = {
        "command": command or [sys.executable, "pod.py"],
        "workingDirectory": str(APPS),
        "env": {"SERVE": serve, "VERSION": version, "CONTROL": str(control), **(environment or {})},
        # Names without a protocol: here the Service declares the protocol of a port.
        "ports": [{"name": f"p{port}", "port": port} for port in ports],
        **spec,
    }
    if ports and "readiness" not in spec:
        body["readiness"] = {"tcp": {"port": ready_port or ports[-1]}, "period": "100ms"}
    return {
        "apiVersion": "weft.dev/v1alpha1",
        "kind": "Workload",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {"app": app or name, "version": version, **(labels or {})},
            **({"annotations": annotations} if annotations else {}),
        },
        "spec": body,
    }


def service(name: str, *ports: Document, namespace: str = NAMESPACE, **spec: Any) -> Document:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"selector": {"app": name}, "ports": list(ports), **spec},
    }


def http_service(name: str, namespace: str = NAMESPACE) -> Document:
    return service(name, {"name": "http", "port": 80, "targetPort": 8080}, namespace=namespace)


def istio(kind: str, name: str, spec: Document, namespace: str = NAMESPACE) -> Document:
    return {
        "apiVersion": "networking.istio.io/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }


def virtual_service(name: str, *http: Document, **spec: Any) -> Document:
    return istio("VirtualService", name, {"hosts": [name], "http": list(http), **spec})


def destination_rule(name: str, *subsets: str, **policy: Any) -> Document:
    spec: Document = {"host": name}
    if policy:
        spec["trafficPolicy"] = policy
    if subsets:
        spec["subsets"] = [{"name": subset, "labels": {"version": subset}} for subset in subsets]
    return istio("DestinationRule", name, spec)


def standard(kind: str, name: str, spec: Document, namespace: str = NAMESPACE, version: str = "v1") -> Document:
    """An object of the Gateway API."""
    return {
        "apiVersion": f"gateway.networking.k8s.io/{version}",
        "kind": kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }


def http_route(name: str, *rules: Document, namespace: str = NAMESPACE, parent: Document | None = None) -> Document:
    """Attached to the Service of its name, unless it has another parent."""
    parents = [parent or {"group": "", "kind": "Service", "name": name, "namespace": NAMESPACE}]
    return standard("HTTPRoute", name, {"parentRefs": parents, "rules": list(rules)}, namespace)


def to(host: str, subset: str = "", weight: int | None = None) -> Document:
    """One destination of a route."""
    destination = {"host": host, **({"subset": subset} if subset else {})}
    return {"destination": destination, **({} if weight is None else {"weight": weight})}
