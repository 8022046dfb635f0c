"""Derives the plan of a pod's proxy (everything needed to run it) from the plan of the pod: the proxy's node id and
metadata, and which traffic is intercepted."""

from __future__ import annotations

from ipaddress import ip_network
from pathlib import Path

from weft.envoy.bootstrap import Bootstrap, BootstrapNode, Tcp, Unix
from weft.local.dns import PROXY_PORT
from weft.local.pod import PodPlan
from weft.model.proxy import OPEN_PORTS
from weft.model.workload import Workload
from weft.netns.interception import EVERYTHING, Interception
from weft.netns.links import Bridge
from weft.netns.namespace import NetworkNamespace
from weft.netns.view import Laid
from weft.node.proxy import ProxyPlan


def proxy_plan(
    plan: PodPlan,
    namespace: NetworkNamespace,
    directory: Path,
    *,
    bridge: Bridge,
    binary: Path,
    xds_socket: Path,
    sds_socket: Path,
    domain: str,
) -> ProxyPlan:
    return ProxyPlan(
        bootstrap=Bootstrap(
            node=node(plan, domain),
            xds=Unix(str(xds_socket)),
            sds=Unix(str(sds_socket)),
            resolvers=tuple(Tcp(str(each.ip), PROXY_PORT) for each in (bridge.ipv4, bridge.ipv6) if each is not None),
            ipv6=plan.addresses.ipv6 is not None,
        ),
        binary=binary,
        namespace=namespace,
        directory=directory,
        interception=interception(plan.workload, bridge),
        sockets=(str(xds_socket), str(sds_socket.parent)),
        # A pod cannot reach the resolvers in the machine's resolv.conf, and an Envoy that waits for them never becomes
        # ready.
        files=(Laid(str(directory / "resolv.conf"), "/etc/resolv.conf"),),
    )


def node(plan: PodPlan, domain: str) -> BootstrapNode:
    workload = plan.workload
    return BootstrapNode(
        name=plan.name,
        namespace=workload.namespace,
        addresses=plan.addresses.texts,
        workload=workload.name,
        service_account=workload.service_account,
        labels=dict(workload.labels),
        dns_domain=f"{workload.namespace}.svc.{domain}",
        containers=("app",),
        locality=workload.locality,
    )


def interception(workload: Workload, bridge: Bridge) -> Interception:
    # DNS queries to the mesh's own server over TCP are not intercepted.
    resolvers = [ip_network(each.ip) for each in (bridge.ipv4, bridge.ipv6) if each is not None]
    inbound, ranges = workload.included_ports, workload.include_outbound_ranges
    return Interception(
        inbound_ports=EVERYTHING if inbound is None else inbound,
        inbound_ports_excluded=(*OPEN_PORTS, *workload.exclude_inbound_ports),
        outbound_ranges=EVERYTHING if ranges == EVERYTHING else tuple(ip_network(each) for each in _split(ranges)),
        outbound_ranges_excluded=(*resolvers, *(ip_network(each) for each in workload.exclude_outbound_ranges)),
        outbound_ports=workload.include_outbound_ports,
        outbound_ports_excluded=workload.exclude_outbound_ports,
    )


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
