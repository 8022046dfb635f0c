"""`weft control`: only the control plane. A directory comes in, xDS goes out, to any client that speaks it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from weft.control.plane import ControlPlane


def control(
    config: Path = typer.Option(Path(), "--config", help="The directory of YAML, watched for changes."),
    listen: str = typer.Option("127.0.0.1:15010", "--listen", help="HOST:PORT or unix:/path; plaintext xDS."),
    domain: str = typer.Option("cluster.local", "--domain", help="What service names end in."),
) -> None:
    """Serve xDS from a directory of YAML. Without pods, without root: for Envoys and gRPC clients run elsewhere.

    \b
    Example: weft control --config examples/shop --listen 127.0.0.1:15010
    """
    import asyncio

    from weft.base import log
    from weft.cli.output import fail
    from weft.control.plane import ControlPlane

    if not config.is_dir():
        fail(f"{config} is not a directory", "give a directory of YAML files: --config DIR")
    if not _is_address(listen):
        fail(
            f"`{listen}` is not an address to serve on",
            "give HOST:PORT or unix:/path: --listen 127.0.0.1:15010",
            code=2,
        )
    log.configure("INFO")
    asyncio.run(_serve(ControlPlane(domain=domain), config, listen))


def _is_address(text: str) -> bool:
    if text.startswith("unix:"):
        return len(text) > len("unix:")
    host, colon, port = text.rpartition(":")
    return bool(host and colon) and port.isdecimal() and int(port) <= 65_535


async def _serve(plane: ControlPlane, config: Path, listen: str) -> None:
    """Until SIGINT or SIGTERM."""
    import asyncio
    import signal

    from weft.cli.output import fail, say
    from weft.xds.server import ListenError

    loop = asyncio.get_running_loop()
    reading = asyncio.create_task(_read(plane, config))
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, reading.cancel)
    try:
        bound = await plane.listen(listen)
        say(f"serving xDS on {bound} from {config}; Ctrl-C ends it")
        await asyncio.wait((reading,))
        if not reading.cancelled():
            reading.result()
    except ListenError as error:
        fail(str(error), "choose another address: --listen 127.0.0.1:15011")
    finally:
        reading.cancel()
        await plane.close()


async def _read(plane: ControlPlane, config: Path) -> None:
    from weft.files.watch import watch

    async for batch in watch(config):
        plane.apply(batch.changes, batch.problems)
