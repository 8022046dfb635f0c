"""Build the stage of a running control plane, for `weft explain` and other debug pages: with the resources that its
proxies have now."""

from __future__ import annotations

from weft.control.plane import ControlPlane
from weft.inspect.stage import Stage


def live_stage(plane: ControlPlane) -> Stage:
    """Return a stage of the control plane's current mesh. Use it before the event loop runs other tasks: the mesh
    must not change meanwhile."""
    plane.forget_unused()  # drops the mesh indexes that the previous stage created
    return Stage(plane.mesh, plane.snapshots, plane.listening, plane.calls)
