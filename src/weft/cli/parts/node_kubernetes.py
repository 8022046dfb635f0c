"""`weft node --kubernetes`: runs the agent's daemon in the foreground of its container, until SIGTERM."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING

from weft.cli.print.output import fail, say

if TYPE_CHECKING:
    from weft.node.daemon import DaemonSettings


def run_daemon(settings: DaemonSettings, log_level: str) -> None:
    from weft.base import log

    log.configure(log_level)
    asyncio.run(_run(settings))


async def _run(settings: DaemonSettings) -> None:
    from weft.model.proxy import ROOT_CONFIG_MAP
    from weft.node.csi import CsiListenError
    from weft.node.daemon import Daemon

    try:
        daemon = Daemon(settings)
    except (OSError, ValueError) as error:
        hint = f"mount the ConfigMap {ROOT_CONFIG_MAP}, and give its file: --ca-root FILE"
        fail(f"{settings.roots} cannot be read as certificates: {error}", hint)
    running = asyncio.create_task(daemon.run(lambda: say(f"the driver {settings.driver} is ready for kubelet")))
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, running.cancel)
    await asyncio.wait({running})
    if running.cancelled():
        return
    try:
        running.result()
    except (CsiListenError, OSError) as error:
        fail(str(error), "see --kubelet-root and --health")
