"""`weft node`: the agent of one machine. It reads registrations from files and serves certificates on sockets."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from weft.cli.flags import shared
from weft.model.proxy import IDENTITY_DRIVER

if TYPE_CHECKING:
    from datetime import timedelta

    from weft.ca.client import CertificateClient
    from weft.node.service import NodeService

_KUBERNETES_ROOT = Path("/var/run/secrets/istio/root-cert.pem")  # where Istio mounts the ConfigMap istio-ca-root-cert


@click.command()
@click.option(
    "--workloads",
    type=click.Path(path_type=Path),
    help="A directory that only root can open, with one JSON file for each workload.",
)
@click.option("--ca", default="", help="The CA: HOST:PORT, or unix:/path.")
@click.option(
    "--ca-root",
    type=click.Path(path_type=Path),
    help="A PEM file with the root of the CA's certificate; needed unless --ca is a Unix socket.",
)
@click.option("--ca-name", default="", help="The name in the CA's certificate, if it is not the host of --ca.")
@click.option("--certificate-ttl", default="24h", show_default=True, help="The lifetime of a certificate.")
@shared.kubernetes_flag("Run as the agent and CSI driver of a Kubernetes node.")
@click.option(
    "--control", default="istiod.istio-system.svc:15012", show_default=True, help="The control plane, HOST:PORT."
)
@click.option(
    "--token",
    type=click.Path(path_type=Path),
    default=Path("/var/run/secrets/tokens/istio-token"),
    show_default=True,
    help="The file with the agent's own token.",
)
@click.option("--node-name", default="", envvar="NODE_NAME", show_envvar=True, help="The name of this Node.")
@click.option(
    "--kubelet-root",
    type=click.Path(path_type=Path),
    default=Path("/var/lib/kubelet"),
    show_default=True,
    help="The root directory of kubelet.",
)
@click.option(
    "--driver", "--driver-name", default=IDENTITY_DRIVER, show_default=True, help="The name of the CSIDriver."
)
@shared.trust_domain("The trust domain of the mesh.")
@click.option(
    "--state",
    type=click.Path(path_type=Path),
    help="A directory in memory (tmpfs) that keeps the agent's state for its next start.",
)
@click.option(
    "--redirect", is_flag=True, help="Set up traffic interception for pods that have no right to do it themselves."
)
@click.option(
    "--health", default=":15014", show_default=True, help="The address for kubelet's probes: HOST:PORT or :PORT."
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    help="The lowest level that is logged.",
)
def node(
    workloads: Path | None,
    ca: str,
    ca_root: Path | None,
    ca_name: str,
    certificate_ttl: str,
    kubernetes: bool,
    control: str,
    token: Path,
    node_name: str,
    kubelet_root: Path,
    driver: str,
    trust_domain: str,
    state: Path | None,
    redirect: bool,
    health: str,
    log_level: str,
) -> None:
    """Run the agent that gives every workload of this machine its identity. Each identity is served on a socket that
    only the workload's proxy can open.

    Each file in --workloads declares a workload's identity, its token and its socket; files may be added and removed
    while the agent runs. Keys are created in memory and never written to a disk. On Kubernetes there are no such files:
    kubelet provides the pods.

    \b
    A file, such as web-0.json:
      {"namespace": "shop", "pod": "web-0", "pod_uid": "0f6c6d6e-5f0c",
       "service_account": "web", "token_file": "/run/weft-tokens/web-0",
       "socket": "/run/weft-sds/web-0/sds.sock"}
    More fields: trust_domain, network_namespace, key, uid, gid (docs/identity.md).

    \b
    Example: weft node --workloads /run/weft-node --ca control:15012 --ca-root root-cert.pem
    Example: weft node --kubernetes --node-name worker-1 --state /run/weft

    With --kubernetes the agent is the CSI driver of its node, as in the DaemonSet of `weft install`: pods get their
    sockets through a volume, and kubelet provides the tokens.
    """
    from weft.cli.flags.duration import duration_of
    from weft.cli.print.output import fail

    lifetime = duration_of(certificate_ttl, "--certificate-ttl 24h")
    if kubernetes:
        from weft.cli.parts.node_kubernetes import run_daemon
        from weft.node.daemon import DaemonSettings

        if workloads is not None or ca:
            fail("--workloads and --ca are for machines without Kubernetes", "leave them out", code=2)
        if not node_name:
            fail("the name of the Node is missing", "give --node-name NAME, or set NODE_NAME", code=2)
        run_daemon(
            DaemonSettings(
                node_name=node_name,
                control=control,
                control_name=ca_name,
                roots=ca_root or _KUBERNETES_ROOT,
                token=token,
                kubelet_root=kubelet_root,
                driver=driver,
                trust_domain=trust_domain,
                state=state,
                redirects=redirect,
                health=_address(health),
                lifetime=lifetime,
            ),
            log_level,
        )
        return
    if workloads is None or not ca:
        fail("--workloads or --ca is missing", "give both: --workloads DIR --ca HOST:PORT; or --kubernetes", code=2)
    _run_machine(workloads, ca, ca_root, ca_name, lifetime, log_level)


def _run_machine(
    workloads: Path, ca: str, ca_root: Path | None, ca_name: str, lifetime: timedelta, log_level: str
) -> None:
    import asyncio

    from weft.base import log
    from weft.node.registrations import refuse_unless_ours_alone

    refuse_unless_ours_alone(workloads)
    roots = _roots(ca, ca_root)
    log.configure(log_level)

    async def serve() -> None:
        from weft.ca.client import CertificateClient
        from weft.node.service import NodeService

        client = CertificateClient(ca, roots, server_name=ca_name)
        following = asyncio.create_task(_follow_roots(ca_root, client)) if roots is not None and ca_root else None
        try:
            await _run(NodeService(workloads.absolute(), client, lifetime=lifetime), client)
        finally:
            if following is not None:
                following.cancel()

    asyncio.run(serve())


async def _follow_roots(file: Path, client: CertificateClient) -> None:
    """Watch the file of the CA's roots and trust each new version: the CA may have changed its roots while it was
    unreachable."""
    from weft.node.roots import read_roots, watch_roots

    async for bundle in watch_roots(file, read_roots(file)):
        client.trust("".join(bundle))


def _address(text: str) -> tuple[str | None, int] | None:
    """Parse HOST:PORT or :PORT, and return host and port; None if `text` is empty. The host is None for :PORT, which
    means every address, IPv4 and IPv6: kubelet probes the pod's first address, which may be of either family."""
    from weft.cli.print.output import fail

    host, _, port = text.rpartition(":")
    if not text:
        return None
    if not port.isdecimal() or int(port) > 65_535:
        fail(f"`{text}` is not an address", "for example: --health :15014", code=2)
    return host.strip("[]") or None, int(port)


def _roots(ca: str, ca_root: Path | None) -> str | None:
    from weft.cli.print.output import fail

    if ca.startswith("unix:"):
        return None
    if ca_root is None:
        fail("a CA on the network can only be verified with its root", "give the file: --ca-root root-cert.pem", code=2)
    try:
        return ca_root.read_text(encoding="ascii")
    except (OSError, ValueError) as error:
        fail(f"{ca_root} cannot be read as certificates: {error}", "give the CA's root in PEM: --ca-root FILE")


async def _run(service: NodeService, client: CertificateClient) -> None:
    """Run the agent until SIGINT or SIGTERM."""
    import asyncio
    import signal

    from weft.cli.print.output import say

    running = asyncio.create_task(service.run())
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, running.cancel)
    say("watching the registrations; Ctrl-C ends the agent")
    try:
        await asyncio.wait({running})
        if not running.cancelled():
            running.result()
    finally:
        await client.close()
