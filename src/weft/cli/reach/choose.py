"""Chooses the mesh or the pod that a command is about: the named one, or the only one. If there is no such mesh or pod,
or several, the command ends with a hint."""

from __future__ import annotations

import os

from weft.base.ambiguous import in_several_namespaces
from weft.base.own_command import with_this_weft
from weft.base.suggest import did_you_mean
from weft.cli.print.output import fail, say
from weft.cli.reach.names import split
from weft.local.run_directory import meshes
from weft.local.status import MeshStatus, PodPhase, PodStatus

_NOT_ROOT = "" if os.geteuid() == 0 else with_this_weft("\nonly root sees the meshes of this machine: sudo weft …")


def choose_mesh(name: str | None, *, or_cluster: bool = False, or_files: str = "") -> str:
    """Return the name of the running mesh to use: `name`, or, if that is None, the only running mesh. If there is no
    such mesh, the command ends with a hint. With `or_cluster`, the hint also suggests a cluster; `or_files` is a
    command or flag that it suggests for a mesh in files."""
    records = meshes()
    running = [record.name for record in records if record.running]
    killed = [record.name for record in records if not record.running]
    if name is not None:
        if name in killed:
            fail(f"mesh `{name}` was killed", _clean_up(name))
        if name not in running:
            fail(
                f"no mesh named `{name}` is running",
                did_you_mean(name, running) or f"start it with: weft up DIR{_NOT_ROOT}",
            )
        return name
    if not running:
        cleaning = "".join(f"{each} was killed; {_clean_up(each)}\n" for each in killed)
        cluster = "\nor use a cluster: --kubernetes, or --kubeconfig FILE" if or_cluster else ""
        files = f"\nor use files: {or_files}" if or_files else ""
        starting = f"start one with: weft up DIR\nor see the example: weft demo{files}{cluster}{_NOT_ROOT}"
        fail("no mesh is running", f"{cleaning}{starting}")
    if len(running) > 1:
        fail(f"several meshes are running: {', '.join(running)}", f"choose one: --mesh {running[0]}", code=2)
    return running[0]


def one_name(argument: str | None, option: str | None) -> str | None:
    """Return the name of the mesh, which may be given as the argument `NAME` (`argument`) or as `--mesh NAME`
    (`option`); None if neither is given. If the two differ, the command ends."""
    if argument is not None and option is not None and argument != option:
        fail(f"two meshes are named: {argument} and {option}", f"give only one of these names: --mesh {option}", code=2)
    return argument if argument is not None else option


def _clean_up(name: str) -> str:
    return f"clean up after it with: weft down {name}"


def tell_of_killed_meshes() -> None:
    """Print every mesh whose process was killed, and the command that removes its namespaces."""
    for record in meshes():
        if not record.running:
            say(f"mesh {record.name} was killed; {_clean_up(record.name)}")


def running_meshes() -> list[str]:
    return [record.name for record in meshes() if record.running]


def choose_pod(status: MeshStatus, word: str, namespace: str = "") -> PodStatus:
    """Return one pod of the mesh with this `status`: the pod that `word` names, or one pod of the workload that it
    names, preferably a ready one. `word` and `namespace`: as for `choose_pods`."""
    pods = choose_pods(status, word, namespace)
    return next((pod for pod in pods if pod.phase is PodPhase.READY), pods[0])


def choose_pods(status: MeshStatus, word: str, namespace: str = "") -> list[PodStatus]:
    """Return the pod that `word` names, or all pods of the workload that it names, in the mesh with this `status`.
    Forms of `word`: NAME, NAME.NAMESPACE, NAMESPACE/NAME, deploy/NAME. `namespace` is that of the flag -n."""
    pods = status.pods
    kind, name, namespace = split(word, namespace, known={pod.namespace for pod in pods})
    if kind == "service":
        fail(f"`{word}` is not a workload", "name a pod or a workload; weft ps lists them")
    near = [pod for pod in pods if namespace in ("", pod.namespace)]
    matches = [pod for pod in near if pod.name == name] or [pod for pod in near if pod.workload == name]
    if not matches:
        names = {pod.workload for pod in pods} | {pod.name for pod in pods}
        fail(f"mesh `{status.name}` has no workload or pod `{word}`", did_you_mean(name, names) or "list them: weft ps")
    places = {pod.namespace for pod in matches}
    if len(places) > 1:
        raise in_several_namespaces(name, places)
    return matches
