"""Connects a command to a mesh on this machine, to the mesh of a cluster, or to a `weft control`. Input: the flags that
name the mesh. Output: a `MeshReach`, which queries Envoys and the control plane.

Rule: if both a mesh on this machine and a cluster are possible, the mesh on this machine is used, unless a flag names
the cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.cli.print.output import fail, remember_mesh

if TYPE_CHECKING:
    from weft.cli.reach.interface import MeshReach

_LONGEST_IN_QUERY = 2_000  # bytes; URL encoding turns one letter into up to nine bytes, and the server reads 8 KB


def reach(
    mesh: str | None = None,
    *,
    kubernetes: bool = False,
    kubeconfig: Path | None = None,
    context: str | None = None,
    system: str = "istio-system",
    or_files: str = "",
) -> MeshReach:
    """Return a connection to the mesh that the flags name; the caller closes it. `system` is the namespace of a
    cluster's control plane. `or_files` is the flag or command that the error suggests for a mesh in files, if no mesh
    runs."""
    chosen = which(mesh, kubernetes=kubernetes, kubeconfig=kubeconfig, context=context, or_files=or_files)
    if mesh is not None:
        remember_mesh("--mesh", mesh)
    elif chosen is None:
        places = (("--kubeconfig", kubeconfig), ("--context", context))
        given = [word for flag, value in places if value is not None for word in (flag, str(value))]
        remember_mesh(*(given or ["--kubernetes"] * kubernetes))
    if isinstance(chosen, Path):
        from weft.cli.reach.control import ControlReach

        return ControlReach(chosen)
    if chosen is not None:
        from weft.cli.reach.local import LocalReach

        return LocalReach(chosen)
    from weft.cli.reach.kubernetes import ClusterReach

    return ClusterReach(kubeconfig, context, system)


def which(
    mesh: str | None, *, kubernetes: bool, kubeconfig: Path | None, context: str | None, or_files: str = ""
) -> str | Path | None:
    """Return which mesh the flags name: the name of a mesh on this machine, the directory of a `weft control`, or
    None for a cluster. `or_files` is the flag or command that the error suggests for a mesh in files, if no mesh
    runs."""
    refuse_two(mesh, kubernetes=kubernetes, kubeconfig=kubeconfig, context=context)
    if kubernetes or kubeconfig or context:
        return None
    from weft.cli.reach.choose import choose_mesh, running_meshes

    if (place := _control_place(mesh)) is not None:
        return place
    if mesh is None and not running_meshes() and _has_cluster():
        return None
    return choose_mesh(mesh, or_cluster=True, or_files=or_files)


def refuse_two(mesh: str | None, *, kubernetes: bool, kubeconfig: Path | None, context: str | None) -> None:
    """End the command if the flags name both a mesh on this machine and a cluster."""
    if mesh is not None and (kubernetes or kubeconfig or context):
        hint = "leave out --mesh, or leave out --kubernetes, --kubeconfig and --context"
        fail("--mesh names a mesh on this machine, but another flag names a cluster", hint, code=2)


def _control_place(mesh: str | None) -> Path | None:
    """Return the directory of the `weft control` to use, or None if there is none. If `mesh` is given: `mesh` itself
    if it is a path, None if it is a name. If `mesh` is None: the default directory, if no mesh runs on this
    machine and a control plane accepts connections there."""
    from weft.cli.reach.choose import running_meshes
    from weft.cli.reach.control_directory import is_place, running_place

    if mesh is not None:
        return Path(mesh) if is_place(mesh) else None
    return None if running_meshes() else running_place()


def answered(
    page: str,
    question: Mapping[str, Any] | None = None,
    *,
    mesh: str | None,
    kubernetes: bool,
    kubeconfig: Path | None,
    context: str | None,
    system: str,
    or_files: str = "",
) -> Any:
    """Send one request to the debug page `page` of the control plane (`weft.inspect.own_pages`), and return the
    decoded JSON response. `question` is the request's data; None if the page needs none. The other parameters
    name the mesh, as for `reach`."""
    import msgspec

    reached = reach(
        mesh, kubernetes=kubernetes, kubeconfig=kubeconfig, context=context, system=system, or_files=or_files
    )
    try:
        body = b"" if question is None else msgspec.json.encode(question)
        if len(body) > _LONGEST_IN_QUERY:
            return msgspec.json.decode(reached.ask(page, question=body))
        return msgspec.json.decode(reached.ask(page, {"question": body.decode()} if body else {}))
    finally:
        reached.close()


def _has_cluster() -> bool:
    """Return whether $KUBECONFIG is set or ~/.kube/config exists."""
    import os

    return bool(os.environ.get("KUBECONFIG")) or (Path.home() / ".kube" / "config").exists()
