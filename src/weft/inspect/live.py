"""Questions about a running control plane: its debug pages, and its mesh as `weft explain` looks at it.

The control plane does not import `weft.inspect`. Whoever runs one (`local/engine.py`, `cluster/cluster_control.py`,
`weft control`) attaches the debug pages to it here.
"""

from __future__ import annotations

from collections.abc import Mapping

from weft.control.plane import ControlPlane
from weft.inspect.debug.pages import Debug, Page
from weft.inspect.debug.stream import DebugStream
from weft.inspect.stage import Stage


def live_stage(plane: ControlPlane) -> Stage:
    """The mesh as it is served now. Use the stage at once: the mesh must not change meanwhile."""
    plane.forget_unused()  # what the stage before this one looked at
    return Stage(plane.mesh, plane.snapshots, plane.listening, plane.calls)


def attach_debug(plane: ControlPlane, namespace: str = "") -> Debug:
    """Answer debug requests on the plane's xDS streams, and return the pages for other doors. `namespace`: the control
    plane's own; service accounts of it may read the answers."""
    debug = Debug(plane.diagnosis, plane.mesh, plane.contents, lambda: _own_pages(plane))
    plane.answer_debug(DebugStream(debug, namespace, plane.owned))
    return debug


def _own_pages(plane: ControlPlane) -> Mapping[str, Page]:
    from weft.inspect.own_pages import pages  # imports every kind of question; few control planes are asked one

    return pages(plane)
