"""How a command reaches a mesh: the one that runs on this machine, or one of a cluster, or only a control plane. Who is
asked for comes in as a word; Envoy's own answers, and the control plane's, leave.

Rule: where both could be meant, the mesh of this machine is, unless a flag names a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.cli.print.output import fail

if TYPE_CHECKING:
    from weft.cli.reach.interface import MeshReach

_LONGEST_IN_QUERY = 2_000  # bytes; letters of other alphabets become nine of them in a URL, of which 8 KB are read


def reach(
    mesh: str | None = None,
    *,
    kubernetes: bool = False,
    kubeconfig: Path | None = None,
    context: str | None = None,
    system: str = "istio-system",
    or_files: str = "",
) -> MeshReach:
    """Close it when nothing more is to be asked. `system`: where a cluster's control plane is. `or_files`: how whoever
    asks is asked about files."""
    meant = which(mesh, kubernetes=kubernetes, kubeconfig=kubeconfig, context=context, or_files=or_files)
    if isinstance(meant, Path):
        from weft.cli.reach.control import ControlReach

        return ControlReach(meant)
    if meant is not None:
        from weft.cli.reach.local import LocalReach

        return LocalReach(meant)
    from weft.cli.reach.kubernetes import ClusterReach

    return ClusterReach(kubeconfig, context, system)


def which(
    mesh: str | None, *, kubernetes: bool, kubeconfig: Path | None, context: str | None, or_files: str = ""
) -> str | Path | None:
    """Who is meant: a mesh of this machine, by its name, a `weft control`, by its place, or (None) a cluster."""
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
    """A mesh of this machine and a cluster at once."""
    if mesh is not None and (kubernetes or kubeconfig or context):
        fail("--mesh is for this machine, and another flag names a cluster", "leave one of them out", code=2)


def _control_place(mesh: str | None) -> Path | None:
    """Where the `weft control` is asked that is meant: by its path, or because nothing else runs here."""
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
    """What a control plane says on a page of its own (`weft.inspect.own_pages`): one question, one answer."""
    import msgspec

    reached = reach(
        mesh, kubernetes=kubernetes, kubeconfig=kubeconfig, context=context, system=system, or_files=or_files
    )
    try:
        asked = b"" if question is None else msgspec.json.encode(question)
        if len(asked) > _LONGEST_IN_QUERY:
            return msgspec.json.decode(reached.ask(page, question=asked))
        return msgspec.json.decode(reached.ask(page, {"question": asked.decode()} if asked else {}))
    finally:
        reached.close()


def _has_cluster() -> bool:
    """Whether somebody has said how to reach one."""
    import os

    return bool(os.environ.get("KUBECONFIG")) or (Path.home() / ".kube" / "config").exists()
