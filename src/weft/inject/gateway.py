"""Pods that are gateways: their container `istio-proxy` is no wish about a sidecar, but the pod's own reason to be.

A pod says so by Istio's annotation, as Istio's gateway chart does; its container has the image `auto` and is completed.
Nothing is redirected, no probe is rewritten, nobody waits for it, and it is never marked as one that takes the mesh's
TLS: who calls a gateway may be anybody.
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
ROUTER = "router"  # what Istio calls such a proxy

_SIDECAR_TEMPLATE = "sidecar"
_LOW_PORTS = "net.ipv4.ip_unprivileged_port_start"


def is_gateway(annotations: Mapping[str, str], named: str) -> bool:
    """Raises InjectionRefused for a template that does not exist: a pod must not run without what it asked for."""
    wanted = [each.strip() for each in annotations.get(TEMPLATES, "").split(",") if each.strip()]
    unknown = [each for each in wanted if each not in (_SIDECAR_TEMPLATE, GATEWAY_TEMPLATE)]
    if unknown or len(wanted) > 1:
        what = f"template {unknown[0][:64]} is not known" if unknown else "a pod has one template"
        where = Where(object=named, field=f"metadata.annotations[{TEMPLATES}]")
        raise InjectionRefused([Problem(where, what, f"write {_SIDECAR_TEMPLATE} or {GATEWAY_TEMPLATE}")])
    return wanted == [GATEWAY_TEMPLATE]


def of_gateway(wishes: Wishes, settings: InjectionSettings, own: Mapping[str, Any]) -> Wishes:
    """`own`: what the pod says of its container. It has a worker for each CPU that it may use, unless somebody has said
    how many: nothing else of the pod needs them."""
    said = wishes.concurrency != settings.concurrency
    workers = wishes.concurrency if said else max(1, math.ceil(_limit(wishes, own, "cpu")))
    return msgspec.structs.replace(
        wishes, redirected=False, rewrite_probes=False, hold=False, native=False, concurrency=workers
    )


def memory(wishes: Wishes, own: Mapping[str, Any]) -> int:
    """Bytes that its container may take; 0 if there is no limit."""
    return int(_limit(wishes, own, "memory"))


def _limit(wishes: Wishes, own: Mapping[str, Any], name: str) -> Decimal:
    """By the pod's own word, or by ours."""
    resources = own.get("resources")
    limits = resources.get("limits") if isinstance(resources, Mapping) else None
    said = limits.get(name) if isinstance(limits, Mapping) else None
    return amount(str(said if said is not None else wishes.resources.limits.get(name, ""))) or Decimal(0)


def open_low_ports(spec: dict[str, Any]) -> None:
    """As Istio's chart does: so that a proxy which is not root can listen on port 80. A pod's own word stays."""
    context = spec.get("securityContext") or {}
    if not isinstance(context, dict):
        return
    sysctls = context.get("sysctls") or []
    if not any(isinstance(each, dict) and each.get("name") == _LOW_PORTS for each in sysctls):
        spec["securityContext"] = {**context, "sysctls": [*sysctls, {"name": _LOW_PORTS, "value": "0"}]}
