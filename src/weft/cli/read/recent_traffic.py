"""Reads recent requests from the access logs of callers' proxies and of gateways, if the mesh writes access logs to
standard output. The logs are read only when a command needs them. weft does not store requests itself, so requests do
not become slower."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from weft.inspect.compare.recent_traffic import SeenRequest
    from weft.kube.client import Client
    from weft.kube.objects import PodObject
    from weft.local.status import MeshStatus

LINES = 2_000  # the last lines of each proxy's log
MOST_PROXIES = 200  # the most proxies of a cluster whose logs are read
_BYTES = 1 << 20  # the most of each proxy's log on a cluster
_AT_ONCE = 8

NOT_RECORDED = (
    "recent traffic is not compared, because it is not recorded: enable the access log of callers' proxies with "
    "accessLogFile: /dev/stdout, or with a Telemetry without mode: SERVER"
)


def seen_here(status: MeshStatus) -> tuple[SeenRequest, ...]:
    """Return the recent requests of a mesh on this machine. The logs of pods that have ended are gone."""
    from contextlib import suppress

    from weft.inspect.compare.recent_traffic import Recent
    from weft.local.client import read_logs
    from weft.local.error import LocalError

    recent = Recent()
    inside = {address for pod in status.pods if pod.sync.value != "-" for address in pod.addresses}
    for pod in sorted(status.pods, key=lambda each: each.gateway):  # gateways last: outside callers may send many kinds
        if pod.sync.value != "-":
            with suppress(LocalError):
                lines = read_logs(status.name, f"{pod.namespace}/{pod.name}", proxy=True, lines=LINES)
                name = f"{pod.workload}.{pod.namespace}"
                if pod.gateway:
                    recent.add_gateway(name, inside, lines)
                else:
                    recent.add(name, pod.addresses, lines)
    return recent.kinds()


async def seen_on_cluster(client: Client) -> tuple[SeenRequest, ...]:
    """Return the recent requests of a cluster's mesh. The user needs the permission to get pods/log."""
    import asyncio

    from weft.cli.print.output import say
    from weft.inspect.compare.recent_traffic import Recent
    from weft.kube.error import KubeError
    from weft.kube.objects import PodObject
    from weft.kube.pods import is_over, record_of, workload_of
    from weft.kube.resource import PODS

    slots = asyncio.Semaphore(_AT_ONCE)
    refused: list[str] = []

    async def lines(pod: PodObject) -> list[str]:
        async with slots:
            try:
                return await _log(client, pod)
            except KubeError as error:
                refused.append(error.problem.what)
                return []

    try:
        listed = (await client.list(PODS, PodObject)).items
    except KubeError as error:
        say(f"recent traffic is not included: {error.problem.what}")
        return ()
    meshed = [pod for pod in listed if not is_over(pod) and record_of(pod).proxied]
    recent = Recent()
    inside = {address for pod in meshed for address in record_of(pod).addresses}
    looked_at = sorted(meshed[:MOST_PROXIES], key=_is_gateway)
    for pod, log_lines in zip(looked_at, await asyncio.gather(*map(lines, looked_at)), strict=True):
        name = f"{workload_of(pod)}.{pod.metadata.namespace}"
        if _is_gateway(pod):
            recent.add_gateway(name, inside, log_lines)
        else:
            recent.add(name, record_of(pod).addresses, log_lines)
    if refused:
        say(f"the logs of {len(refused)} of {len(looked_at)} proxies could not be read: {refused[0]}")
    if len(meshed) > MOST_PROXIES:
        say(f"recent traffic covers {MOST_PROXIES} of {len(meshed)} proxies")
    return recent.kinds()


def _is_gateway(pod: PodObject) -> bool:
    from weft.kube.pods import record_of
    from weft.model.group import ProxyKind

    return record_of(pod).group.kind is ProxyKind.GATEWAY


async def _log(client: Client, pod: PodObject) -> list[str]:
    from weft.kube.resource import PODS

    query = {"container": "istio-proxy", "tailLines": str(LINES), "limitBytes": str(_BYTES)}
    path = PODS.path(pod.metadata.namespace, pod.metadata.name, "log")
    return (await client.raw("GET", path, query=query)).decode(errors="replace").splitlines()
