"""The stage of a running control plane, for `weft explain`: with the resources that its proxies have now."""

from __future__ import annotations

from weft.control.plane import ControlPlane
from weft.inspect.stage import Stage


def live_stage(plane: ControlPlane) -> Stage:
    """Use the stage at once: the mesh must not change meanwhile."""
    plane.forget_unused()  # groups that the previous stage translated
    return Stage(plane.mesh, plane.snapshots, plane.listening, plane.calls)
