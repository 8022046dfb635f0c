"""`weft control --kubernetes`: runs the control plane of a cluster, as its Deployment does."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from weft.cli.print.output import fail, say

# Seconds for which a replica still serves after SIGTERM. During this time the API server may still send it webhook
# requests, and a request without a response rejects a pod. On a busy node, five seconds were not always enough.
LINGER = 10.0

if TYPE_CHECKING:
    from datetime import timedelta
    from pathlib import Path

    from weft.cluster.cluster_control import ClusterControl


class Listening(NamedTuple):
    """Addresses to serve on, as HOST:PORT: plaintext xDS, xDS and the CA with TLS, the webhooks, and health with
    metrics. An empty `secure`, `webhooks` or `monitoring` means port 15012, 15017 or 15014 on every address."""

    xds: str
    secure: str = ""
    webhooks: str = ""
    monitoring: str = ""


def run(
    kubeconfig: Path | None,
    listening: Listening,
    *,
    namespace: str,
    revision: str,
    domain: str,
    ca: Path,
    skew: timedelta,
) -> None:
    """Run the control plane of a cluster until SIGINT, or until `LINGER` seconds after SIGTERM. `ca` is the directory
    of a plugged-in CA's files, `skew` how much clocks may differ. `listening`: the addresses to serve on. `namespace`,
    `revision`: those of the installation. `domain`: the cluster's DNS domain."""
    import asyncio
    import os
    import socket

    from weft.base.secrecy import keep_memory_private
    from weft.base.tls_loop import TlsEventLoop
    from weft.cluster.cluster_control import ClusterSettings
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
        xds=listening.xds,
        secure=listening.secure or f"{every}:15012",
        webhooks=_address(listening.webhooks, 15017),
        monitoring=_address(listening.monitoring, 15014),
    )

    async def serve() -> None:
        from weft.cluster.cluster_control import ClusterControl
        from weft.kube.client import Client

        async with Client(connection) as client:
            say(f"watching the objects of {connection.server} as replica {settings.replica}")
            await _until_told(ClusterControl(client, settings))

    with asyncio.Runner(loop_factory=TlsEventLoop) as runner:  # saves memory: there are many TLS connections
        runner.run(serve())


def _address(text: str, port: int) -> tuple[str | None, int]:
    if not text:
        return None, port
    host, _, number = text.rpartition(":")
    if not host or not number.isdecimal():
        fail(f"`{text}` is not an address to serve on", "give HOST:PORT, such as 127.0.0.1:0", code=2)
    return host.strip("[]"), int(number)


async def _until_told(control: ClusterControl) -> None:
    import asyncio
    import signal

    from weft.xds.server import ListenError

    running = asyncio.create_task(control.run())
    loop = asyncio.get_running_loop()

    def told_to_end() -> None:
        control.leave()
        loop.call_later(LINGER, running.cancel)

    loop.add_signal_handler(signal.SIGINT, running.cancel)
    loop.add_signal_handler(signal.SIGTERM, told_to_end)
    await asyncio.wait({running})
    if running.cancelled():
        return
    try:
        running.result()
    except (ListenError, OSError) as error:
        fail(str(error), "is another control plane running here?")
