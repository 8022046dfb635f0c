"""Connects the injector with Envoy's bootstrap: renders the arguments with which a pod's sidecar starts Envoy.

Values that only the kubelet knows are placeholders of the injector, which stay in the arguments.
"""

from __future__ import annotations

from weft.envoy.bootstrap import Bootstrap, BootstrapNode, DnsAddress, Unix, render
from weft.envoy.command import options
from weft.inject.sidecar import InjectedSidecar

_PLAINTEXT_PORT = 15010


def arguments(sidecar: InjectedSidecar) -> list[str]:
    """Return Envoy's arguments for a sidecar. This is the `Renderer` of the webhook and of `weft kube-inject`."""
    return [
        *("--config-yaml", render(bootstrap(sidecar))),
        *options(
            log_level=sidecar.log_level,
            component_log_level=sidecar.component_log_level,
            concurrency=sidecar.concurrency,
            drain_seconds=sidecar.drain_seconds,
        ),
    ]


def bootstrap(sidecar: InjectedSidecar) -> Bootstrap:
    return Bootstrap(
        node=BootstrapNode(
            kind=sidecar.kind,
            name=sidecar.name,
            namespace=sidecar.namespace,
            addresses=(sidecar.address,),
            workload=sidecar.workload,
            service_account=sidecar.service_account,
            labels=sidecar.labels,
            dns_domain=sidecar.dns_domain,
            cluster_id=sidecar.cluster_id,
            mesh_id=sidecar.mesh_id,
            containers=sidecar.containers,
            metadata=sidecar.metadata,
        ),
        xds=_control(sidecar.control) if sidecar.control else Unix(sidecar.xds_socket),
        sds=Unix(sidecar.sds_socket),
        status_port=sidecar.status_port,
        probes=sidecar.probes,
        ipv6=sidecar.ipv6,
        memory=sidecar.memory,
    )


def _control(address: str) -> DnsAddress:
    host, _, port = address.rpartition(":")
    return DnsAddress(host=host.strip("[]"), port=int(port), tls=int(port) != _PLAINTEXT_PORT)
