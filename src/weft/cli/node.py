"""`weft node`: the agent of one machine. Registrations come in as files, certificates leave through sockets."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from weft.ca.client import CertificateClient
    from weft.node.service import NodeService


def node(
    workloads: Path = typer.Option(
        ..., "--workloads", help="A directory that only root can open, with one JSON file for each workload."
    ),
    ca: str = typer.Option(..., "--ca", help="The CA: HOST:PORT, or unix:/path."),
    ca_root: Path | None = typer.Option(None, "--ca-root", help="The root by which the CA on the network is known."),
    ca_name: str = typer.Option("", "--ca-name", help="What the CA's certificate says, if not the host of --ca."),
    certificate_ttl: str = typer.Option("24h", "--certificate-ttl", help="How long a certificate lives."),
) -> None:
    """Give every workload of this machine its identity, on a socket that only its proxy can open.

    Each file says who a workload is, where its token is, and where its socket shall be; files may come and go while it
    runs. The keys are made here and are in no file.

    \b
    A file, such as web-0.json:
      {"namespace": "shop", "pod": "web-0", "pod_uid": "0f6c6d6e-5f0c",
       "service_account": "web", "token_file": "/run/weft-tokens/web-0",
       "socket": "/run/weft-sds/web-0/sds.sock"}
    More fields: trust_domain, network_namespace, key, uid, gid (docs/identity.md).

    \b
    Example: weft node --workloads /run/weft-node --ca control:15012 --ca-root root-cert.pem
    """
    import asyncio

    from weft.base import log
    from weft.cli.duration import duration_of
    from weft.node.registrations import refuse_unless_ours_alone

    lifetime = duration_of(certificate_ttl, "--certificate-ttl 24h")
    refuse_unless_ours_alone(workloads)
    roots = _roots(ca, ca_root)
    log.configure("INFO")

    async def serve() -> None:
        from weft.ca.client import CertificateClient
        from weft.node.service import NodeService

        client = CertificateClient(ca, roots, server_name=ca_name)
        await _run(NodeService(workloads.absolute(), client, lifetime=lifetime), client)

    asyncio.run(serve())


def _roots(ca: str, ca_root: Path | None) -> str | None:
    from weft.cli.output import fail

    if ca.startswith("unix:"):
        return None
    if ca_root is None:
        fail("a CA on the network is known by its root", "give the file: --ca-root root-cert.pem", code=2)
    try:
        return ca_root.read_text(encoding="ascii")
    except (OSError, ValueError) as error:
        fail(f"{ca_root} cannot be read as certificates: {error}", "give the CA's root in PEM: --ca-root FILE")


async def _run(service: NodeService, client: CertificateClient) -> None:
    """Until SIGINT or SIGTERM."""
    import asyncio
    import signal

    from weft.cli.output import say

    running = asyncio.create_task(service.run())
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, running.cancel)
    say("following registrations; Ctrl-C ends it")
    try:
        await asyncio.wait({running})
        if not running.cancelled():
            running.result()
    finally:
        await client.close()
