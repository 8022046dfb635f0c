"""Ends `weft ps` and `weft status` with an error if workloads of the files do not run, because they are rejected: their
tables alone would look as if nothing were missing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.cli.print.output import fail, from_here

if TYPE_CHECKING:
    from weft.local.status import MeshStatus


def end_if_workloads_lack(*statuses: MeshStatus, hint: str = "") -> None:
    """End the command with code 1 if workloads of one of the meshes do not run because they are rejected. `hint`: what
    to do; by default, to look at the status of these meshes."""
    lacking = [status for status in statuses if status.lacks_workloads]
    if lacking:
        looks = "\n".join(f"see the errors: weft status --mesh {status.name}" for status in lacking)
        fail("; ".join(what_lacks(status) for status in lacking), hint or looks)


def what_lacks(status: MeshStatus) -> str:
    """Return which workloads of the mesh do not run because they are rejected, as text; "" if there are none."""
    if not status.lacks_workloads:
        return ""
    missing = [each for each in status.rejected if each.kind == "Workload" and not each.is_in_force]
    if not missing:
        return f"no workload runs in mesh {status.name}, and its files have errors"
    return "; ".join(from_here(str(each)) for each in missing)
