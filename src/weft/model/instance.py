"""A running instance with an address: a pod of the local engine, a Kubernetes pod or a WorkloadEntry. An instance
together with a service port it serves is an Endpoint (`endpoint.py`)."""

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
    protocols: tuple[tuple[int, Protocol], ...] = ()  # protocols that the workload itself declares
    ready: bool = True
    meshed: bool = False  # has a sidecar of this mesh
    gateway: bool = False  # is itself a gateway proxy of this mesh
    included_ports: tuple[int, ...] | None = None  # the only ports at which the sidecar intercepts calls; None: all
    excluded_ports: tuple[int, ...] = ()  # ports at which the sidecar never intercepts calls
    weight: int = 1
    locality: str = ""
    network: str = ""
    workload: str = ""  # the Workload or Deployment it belongs to
    named: bool = False  # a WorkloadEntry with a host name instead of an address
    published: tuple[int, ...] = ()  # ports of a gateway that are reachable from its machine, by one socket each
    by_slice: bool = False  # a Kubernetes pod: an endpoint only of Services whose EndpointSlices list it
    origin: Origin | None = None

    @property
    def is_entry(self) -> bool:
        return self.origin is not None and self.origin.key.kind == "WorkloadEntry"

    @property
    def key(self) -> str:
        """A key that is unique among the instances of a namespace. The name alone is not unique: a WorkloadEntry may
        have the same name as a pod."""
        return f"WorkloadEntry/{self.name}" if self.is_entry else self.name

    @property
    def proxied(self) -> bool:
        """Whether the instance has a sidecar of this mesh or is a gateway."""
        return self.meshed or self.gateway

    def intercepts(self, number: int) -> bool:
        """Whether the instance's sidecar intercepts calls to the port `number`."""
        included = self.included_ports is None or number in self.included_ports
        return self.meshed and included and number not in self.excluded_ports

    def speaks_tls(self, number: int) -> bool:
        """Whether the instance can accept the mesh's TLS at the port `number`; policies are not considered. A label of
        the instance may disable TLS, or declare that an instance without a sidecar terminates TLS itself."""
        return self.intercepts(number) and _NO_TLS not in self.labels if self.meshed else _OWN_TLS in self.labels

    def can_answer(self, resolution: Resolution) -> bool:
        """Whether the instance can be an endpoint of a service with this `resolution`. With STATIC, an instance that
        has a host name instead of an address cannot. With every other resolution, an instance that has a Unix
        socket cannot."""
        if resolution is Resolution.STATIC:
            return not self.named
        return not any(address.startswith("unix://") for address in self.addresses)

    def port_for(self, port: ServicePort) -> int | None:
        """The port number on which this instance serves a service port; None if the port's target is a port name
        that the instance does not have."""
        if isinstance(port.target, str) and port.target:
            return dict(self.ports).get(port.target)
        if self.is_entry and port.name in dict(self.ports):
            return dict(self.ports)[port.name]  # specific to this service port: overrides the targetPort
        return port.target or dict(self.ports).get(port.name) or port.number


def pod_of(workload: Workload, name: str, addresses: tuple[str, ...], *, ready: bool = True) -> Instance:
    """The Instance of one pod of a Workload. `name`: that of the pod. `ready`: whether it may receive calls."""
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
