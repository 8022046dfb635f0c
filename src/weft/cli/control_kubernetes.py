"""`weft control --kubernetes`: the control plane of a cluster, as its Deployment runs it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.cli.output import fail, say

if TYPE_CHECKING:
    from datetime import timedelta
    from pathlib import Path

    from weft.control.cluster import ClusterControl


def run(
    kubeconfig: Path | None, *, namespace: str, revision: str, domain: str, xds: str, ca: Path, skew: timedelta
) -> None:
    """Until SIGINT or SIGTERM."""
    import asyncio
    import os
    import socket

    from weft.base.secrecy import keep_memory_private
    from weft.control.cluster import ClusterSettings
    from weft.kube.config import load

    keep_memory_private()
    connection = load(kubeconfig)
    every = "[::]" if socket.has_dualstack_ipv6() else "0.0.0.0"
    settings = ClusterSettings(
        namespace=namespace,
        revision=revision,
        domain=domain,
        replica=os.environ.get("POD_NAME") or f"{socket.gethostname()}-{os.getpid()}",
        plugged=ca,
        skew=skew,
        xds=xds,
        secure=f"{every}:15012",
    )

    async def serve() -> None:
        from weft.control.cluster import ClusterControl
        from weft.kube.client import Client

        async with Client(connection) as client:
            say(f"following {connection.server} as {settings.replica}")
            await _until_told(ClusterControl(client, settings))

    asyncio.run(serve())


async def _until_told(control: ClusterControl) -> None:
    import asyncio
    import signal

    from weft.xds.server import ListenError

    running = asyncio.create_task(control.run())
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, running.cancel)
    await asyncio.wait({running})
    if running.cancelled():
        return
    try:
        running.result()
    except (ListenError, OSError) as error:
        fail(str(error), "is another control plane running here?")
