"""Attaches the debug pages, Istio's and weft's own, to a running control plane.

The control plane does not import `weft.inspect`. So each program that runs a control plane (`local/engine.py`,
`cluster/cluster_control.py`, `weft control`) calls `attach_debug`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from weft.control.plane import ControlPlane
from weft.inspect.debug.pages import Debug, Page
from weft.inspect.debug.stream import DebugStream


def attach_debug(plane: ControlPlane, namespace: str = "", loaded: Callable[[], bool] = lambda: True) -> Debug:
    """Serve the debug pages on the plane's xDS streams. Return the pages, for HTTP and the Unix socket. `namespace`:
    the control plane's own namespace, whose service accounts may read the pages. `loaded`: whether the plane has read
    its objects."""
    debug = Debug(plane.diagnosis, plane.mesh, plane.contents, lambda: _own_pages(plane), loaded)
    plane.answer_debug(DebugStream(debug, namespace, plane.owned))
    return debug


def _own_pages(plane: ControlPlane) -> Mapping[str, Page]:
    from weft.inspect.own_pages import pages  # imported late: it imports many modules that few control planes need

    return pages(plane)
