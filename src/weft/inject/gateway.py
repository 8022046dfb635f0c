"""Pods that are gateways: their container `istio-proxy` is no wish about a sidecar, but the pod's own reason to be.

A pod says so by Istio's annotation, as Istio's gateway chart does; its container has the image `auto` and is completed.
Nothing is redirected, no probe is rewritten, nobody waits for it, and it is never marked as one that takes the mesh's
TLS: who calls a gateway may be anybody.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from weft.base.problem import Problem, Where
from weft.inject.annotations import Refused, Wishes
from weft.model.proxy import GATEWAY_TEMPLATE

TEMPLATES = "inject.istio.io/templates"
ROUTER = "router"  # what Istio calls such a proxy

_SIDECAR_TEMPLATE = "sidecar"
_LOW_PORTS = "net.ipv4.ip_unprivileged_port_start"


def is_gateway(annotations: Mapping[str, str], named: str) -> bool:
    """Raises Refused for a template that is not there: a pod that runs without what it asked for helps nobody."""
    wanted = [each.strip() for each in annotations.get(TEMPLATES, "").split(",") if each.strip()]
    unknown = [each for each in wanted if each not in (_SIDECAR_TEMPLATE, GATEWAY_TEMPLATE)]
    if unknown or len(wanted) > 1:
        what = f"template {unknown[0][:64]} is not known" if unknown else "a pod has one template"
        where = Where(object=named, field=f"metadata.annotations[{TEMPLATES}]")
        raise Refused([Problem(where, what, f"write {_SIDECAR_TEMPLATE} or {GATEWAY_TEMPLATE}")])
    return wanted == [GATEWAY_TEMPLATE]


def without_interception(wishes: Wishes) -> Wishes:
    return msgspec.structs.replace(wishes, redirected=False, rewrite_probes=False, hold=False, native=False)


def open_low_ports(spec: dict[str, Any]) -> None:
    """As Istio's chart does: so that a proxy which is not root can listen on port 80. A pod's own word stays."""
    context = spec.get("securityContext") or {}
    if not isinstance(context, dict):
        return
    sysctls = context.get("sysctls") or []
    if not any(isinstance(each, dict) and each.get("name") == _LOW_PORTS for each in sysctls):
        spec["securityContext"] = {**context, "sysctls": [*sysctls, {"name": _LOW_PORTS, "value": "0"}]}
