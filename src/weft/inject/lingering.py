"""Delays the shutdown of applications. Kubernetes sends SIGTERM to an application at the same moment at which it
begins to inform callers that the pod ends. A caller that is not informed yet would find the port closed. So each
container gets a preStop hook that waits.

The hook is kubelet's own `sleep`, which needs no program in the container. Rule: a container that has a preStop hook
keeps it, and the wait takes at most half of the pod's termination grace period.
"""

from __future__ import annotations

import math
from typing import Any

_GRACE = 30  # seconds; Kubernetes' default for terminationGracePeriodSeconds


def linger(spec: dict[str, Any], seconds: float) -> None:
    """Add a preStop hook that waits `seconds`, but at most half of the grace period, to each container of `spec`
    without a preStop hook, in place. Idempotent."""
    grace = spec.get("terminationGracePeriodSeconds")
    grace = grace if isinstance(grace, int) else _GRACE
    wait = min(math.ceil(seconds), grace // 2)  # whole seconds, and never more than the grace period
    if wait <= 0:
        return
    for container in spec["containers"]:
        lifecycle = container.get("lifecycle") or {}
        if isinstance(lifecycle, dict) and not lifecycle.get("preStop"):
            container["lifecycle"] = {**lifecycle, "preStop": {"sleep": {"seconds": wait}}}
