"""A running control plane's mesh as `weft explain` looks at it: with the resources that its proxies have now."""

from __future__ import annotations

from weft.control.plane import ControlPlane
from weft.inspect.stage import Stage


def live_stage(plane: ControlPlane) -> Stage:
    """Use the stage at once: the mesh must not change meanwhile."""
    plane.forget_unused()  # what the stage before this one looked at
    return Stage(plane.mesh, plane.snapshots, plane.listening, plane.calls)
