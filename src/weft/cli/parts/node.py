"""`weft node`: the agent of one machine. Registrations come in as files, certificates leave through sockets."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from weft.model.proxy import IDENTITY_DRIVER

if TYPE_CHECKING:
    from datetime import timedelta

    from weft.ca.client import CertificateClient
    from weft.node.service import NodeService

_KUBERNETES_ROOT = Path("/var/run/secrets/istio/root-cert.pem")  # where Istio mounts the ConfigMap istio-ca-root-cert


class LogLevel(StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def node(
    workloads: Path | None = typer.Option(
        None, "--workloads", help="A directory that only root can open, with one JSON file for each workload."
    ),
    ca: str = typer.Option("", "--ca", help="The CA: HOST:PORT, or unix:/path."),
    ca_root: Path | None = typer.Option(None, "--ca-root", help="The root by which the CA on the network is known."),
    ca_name: str = typer.Option("", "--ca-name", help="What the CA's certificate says, if not the host of --ca."),
    certificate_ttl: str = typer.Option("24h", "--certificate-ttl", help="How long a certificate lives."),
    kubernetes: bool = typer.Option(False, "--kubernetes", help="Be the agent of a Kubernetes node; see below."),
    control: str = typer.Option("istiod.istio-system.svc:15012", "--control", help="The control plane, HOST:PORT."),
    token: Path = typer.Option(Path("/var/run/secrets/tokens/istio-token"), "--token", help="The agent's own token."),
    node_name: str = typer.Option("", "--node-name", envvar="NODE_NAME", help="The name of this Node."),
    kubelet_root: Path = typer.Option(Path("/var/lib/kubelet"), "--kubelet-root", help="Kubelet's own directory."),
    driver: str = typer.Option(IDENTITY_DRIVER, "--driver", "--driver-name", help="The name of the CSIDriver."),
    trust_domain: str = typer.Option("cluster.local", "--trust-domain", help="The mesh's."),
    state: Path | None = typer.Option(
        None, "--state", help="A directory in memory (tmpfs), where the next agent finds what this one had."
    ),
    redirect: bool = typer.Option(False, "--redirect", help="Set up the redirect of pods that may not do so."),
    health: str = typer.Option(":15014", "--health", help="Where to answer kubelet's probes, HOST:PORT or :PORT."),
    log_level: LogLevel = typer.Option(LogLevel.INFO, "--log-level", help="How much to write to the log."),
) -> None:
    """Give every workload of this machine its identity. Each gets it on a socket that only its proxy can open.

    Each file says who a workload is, where its token is, and where its socket shall be; files may come and go while it
    runs. The keys are made here and are in no file. On Kubernetes there are no files: kubelet says who pods are.

    \b
    A file, such as web-0.json:
      {"namespace": "shop", "pod": "web-0", "pod_uid": "0f6c6d6e-5f0c",
       "service_account": "web", "token_file": "/run/weft-tokens/web-0",
       "socket": "/run/weft-sds/web-0/sds.sock"}
    More fields: trust_domain, network_namespace, key, uid, gid (docs/identity.md).

    \b
    Example: weft node --workloads /run/weft-node --ca control:15012 --ca-root root-cert.pem
    Example: weft node --kubernetes --node-name worker-1 --state /run/weft

    With --kubernetes it is the CSI driver of its node, as the DaemonSet of `weft install` runs it: pods get their
    sockets through a volume, and tokens come from kubelet.
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
            fail("which Node is this?", "say it: --node-name NAME, or NODE_NAME in the environment", code=2)
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
        fail("which workloads, and of which CA?", "give both: --workloads DIR --ca HOST:PORT; or --kubernetes", code=2)
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
    """The CA may have moved to other roots while it could not be reached."""
    from weft.node.roots import read_roots, watch_roots

    async for bundle in watch_roots(file, read_roots(file)):
        client.trust("".join(bundle))


def _address(text: str) -> tuple[str | None, int] | None:
    """Without a host, on every address of both families: kubelet calls the pod's first one, which may be either."""
    from weft.cli.print.output import fail

    host, _, port = text.rpartition(":")
    if not text:
        return None
    if not port.isdecimal() or int(port) > 65_535:
        fail(f"`{text}` is no address", "for example: --health :15014", code=2)
    return host.strip("[]") or None, int(port)


def _roots(ca: str, ca_root: Path | None) -> str | None:
    from weft.cli.print.output import fail

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

    from weft.cli.print.output import say

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
