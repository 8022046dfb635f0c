"""What runs and has an address: a pod of the local engine, a Kubernetes pod, a WorkloadEntry. An instance together with
a service port it serves is an Endpoint (`endpoint.py`)."""

from __future__ import annotations

import msgspec

from weft.model.names import Labels, Origin
from weft.model.service import Protocol, Resolution, ServicePort
from weft.model.workload import Workload

TLS_MODE_LABEL = "security.istio.io/tlsMode"
_NO_TLS, _OWN_TLS = (TLS_MODE_LABEL, "disabled"), (TLS_MODE_LABEL, "istio")


class Instance(msgspec.Struct, frozen=True):
    name: str
    namespace: str
    addresses: tuple[str, ...]  # preferred first; a host name for a WorkloadEntry that has one
    labels: Labels = ()
    service_account: str = "default"
    ports: tuple[tuple[str, int], ...] = ()  # named container ports
    protocols: tuple[tuple[int, Protocol], ...] = ()  # what the workload itself says of its ports
    ready: bool = True
    meshed: bool = False  # has a sidecar of this mesh
    gateway: bool = False  # is itself a proxy of this mesh, at its edge
    included_ports: tuple[int, ...] | None = None  # the only ports at which the sidecar intercepts calls; None: all
    excluded_ports: tuple[int, ...] = ()  # at these it never does
    weight: int = 1
    locality: str = ""
    network: str = ""
    workload: str = ""  # the Workload or Deployment it belongs to
    named: bool = False  # a WorkloadEntry with a host name in the place of an address
    published: tuple[int, ...] = ()  # ports of a gateway that a machine's own callers reach, by a socket each
    by_slice: bool = False  # a Kubernetes pod: it answers for a Service where an EndpointSlice of the Service names it
    origin: Origin | None = None

    @property
    def is_entry(self) -> bool:
        return self.origin is not None and self.origin.key.kind == "WorkloadEntry"

    @property
    def key(self) -> str:
        """Its own among the instances of its namespace: a WorkloadEntry may have the name of a pod."""
        return f"WorkloadEntry/{self.name}" if self.is_entry else self.name

    @property
    def proxied(self) -> bool:
        """Whether a proxy of this mesh is in it: a sidecar, or the gateway that it is."""
        return self.meshed or self.gateway

    def intercepts(self, number: int) -> bool:
        """Whether a call to this port of it meets its sidecar, and not the application itself."""
        included = self.included_ports is None or number in self.included_ports
        return self.meshed and included and number not in self.excluded_ports

    def speaks_tls(self, number: int) -> bool:
        """Whether a call to this port of it can be the mesh's TLS, whatever policies say. A label may turn it off, or
        say of one without a sidecar that it brings its own."""
        return self.intercepts(number) and _NO_TLS not in self.labels if self.meshed else _OWN_TLS in self.labels

    def can_answer(self, resolution: Resolution) -> bool:
        """A name has to be looked up, and a Unix socket cannot be."""
        if resolution is Resolution.STATIC:
            return not self.named
        return not any(address.startswith("unix://") for address in self.addresses)

    def port_for(self, port: ServicePort) -> int | None:
        """The port number on which this instance serves a service port, or None if it does not."""
        if isinstance(port.target, str) and port.target:
            return dict(self.ports).get(port.target)
        if self.is_entry and port.name in dict(self.ports):
            return dict(self.ports)[port.name]  # written for this very service port, so it beats the service's own word
        return port.target or dict(self.ports).get(port.name) or port.number


def pod_of(workload: Workload, name: str, addresses: tuple[str, ...], *, ready: bool = True) -> Instance:
    """One pod of a Workload, as the mesh sees it."""
    return Instance(
        name=name,
        namespace=workload.namespace,
        addresses=addresses,
        labels=workload.labels,
        service_account=workload.service_account,
        ports=tuple((port.name, port.number) for port in workload.ports if port.name),
        protocols=tuple((port.number, port.protocol) for port in workload.ports),
        ready=ready,
        meshed=workload.inject and not workload.gateway,
        gateway=workload.gateway,
        published=tuple(sorted({each.port for each in workload.publish})),
        included_ports=workload.included_ports,
        excluded_ports=workload.exclude_inbound_ports,
        locality=workload.locality,
        workload=workload.name,
        origin=workload.origin,
    )
