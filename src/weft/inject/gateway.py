"""Injection into gateway pods. In a gateway pod, the container `istio-proxy` is the pod's main container; in any
other pod, a container of that name only overrides fields of the injected sidecar.

A pod is a gateway if its annotation `inject.istio.io/templates` is `gateway`, as in Istio's gateway chart. Its
container has the image `auto`, and the injector completes it. Nothing is redirected, no probe is rewritten, no other
container waits for the proxy, and the pod does not get the label for mesh TLS: a gateway's callers may be outside
the mesh.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import msgspec

from weft.base.problem import Problem, Where
from weft.inject.annotations import InjectionRefused, Wishes
from weft.inject.quantity import amount
from weft.inject.settings import InjectionSettings
from weft.model.proxy import GATEWAY_TEMPLATE

TEMPLATES = "inject.istio.io/templates"
ROUTER = "router"  # Istio's name for such a proxy

_SIDECAR_TEMPLATE = "sidecar"
_LOW_PORTS = "net.ipv4.ip_unprivileged_port_start"


def is_gateway(annotations: Mapping[str, str], named: str) -> bool:
    """Return whether the pod's template annotation names the gateway template. `named` is the pod's name for
    messages. Raises InjectionRefused for an unknown template: a pod must not run without a template that it
    requested."""
    wanted = [each.strip() for each in annotations.get(TEMPLATES, "").split(",") if each.strip()]
    unknown = [each for each in wanted if each not in (_SIDECAR_TEMPLATE, GATEWAY_TEMPLATE)]
    if unknown or len(wanted) > 1:
        what = f"unknown template {unknown[0][:64]}" if unknown else "a pod can have only one template"
        where = Where(object=named, field=f"metadata.annotations[{TEMPLATES}]")
        raise InjectionRefused([Problem(where, what, f"write {_SIDECAR_TEMPLATE} or {GATEWAY_TEMPLATE}")])
    return wanted == [GATEWAY_TEMPLATE]


def of_gateway(wishes: Wishes, settings: InjectionSettings, own: Mapping[str, Any]) -> Wishes:
    """Return the pod's settings `wishes`, changed for a gateway. `own` is the pod's own `istio-proxy` container.
    Unless the pod sets the proxy's concurrency, the proxy gets one worker per CPU of the container's limit,
    because the pod runs nothing else."""
    is_set = wishes.concurrency != settings.concurrency
    workers = wishes.concurrency if is_set else max(1, math.ceil(_limit(wishes, own, "cpu")))
    return msgspec.structs.replace(
        wishes, redirected=False, rewrite_probes=False, hold=False, native=False, concurrency=workers
    )


def memory(wishes: Wishes, own: Mapping[str, Any]) -> int:
    """Return the memory limit, in bytes, of the pod's own `istio-proxy` container (`own`), or else of `wishes`, the
    sidecar settings of the pod; 0 if there is no limit."""
    return int(_limit(wishes, own, "memory"))


def _limit(wishes: Wishes, own: Mapping[str, Any], name: str) -> Decimal:
    """Return the limit of the resource `name` (`cpu` or `memory`): from the pod's own `istio-proxy` container, or
    else from `wishes`; 0 if neither has one."""
    resources = own.get("resources")
    limits = resources.get("limits") if isinstance(resources, Mapping) else None
    limit = limits.get(name) if isinstance(limits, Mapping) else None
    return amount(str(limit if limit is not None else wishes.resources.limits.get(name, ""))) or Decimal(0)


def open_low_ports(spec: dict[str, Any]) -> None:
    """Add to a pod's `spec` the sysctl that lets a non-root proxy listen on port 80, as Istio's chart does. A value set
    by the pod is kept."""
    context = spec.get("securityContext") or {}
    if not isinstance(context, dict):
        return
    sysctls = context.get("sysctls") or []
    if not any(isinstance(each, dict) and each.get("name") == _LOW_PORTS for each in sysctls):
        spec["securityContext"] = {**context, "sysctls": [*sysctls, {"name": _LOW_PORTS, "value": "0"}]}
