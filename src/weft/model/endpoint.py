"""An endpoint of a service port: an instance, or an endpoint listed in a ServiceEntry."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from weft.model.instance import TLS_MODE_LABEL, Instance
from weft.model.names import Labels
from weft.model.service import Service, ServicePort, StaticEndpoint

Off = Callable[[Labels, int], bool]  # whether policies turn TLS off for the workloads with these labels at a port


class Endpoint(msgspec.Struct, frozen=True):
    address: str  # an IP address, a host name or `unix:///path`
    port: int
    extra_addresses: tuple[str, ...] = ()  # the address of the other IP family, for the same endpoint
    labels: Labels = ()
    weight: int = 1
    locality: str = ""
    meshed: bool = False
    tls: bool = False  # called over the mesh's TLS unless a DestinationRule sets otherwise
    service_account: str = ""
    instance: str = ""  # NAMESPACE/NAME, for diagnosis


def endpoint_of(instance: Instance, port: ServicePort, off: Off | None) -> Endpoint | None:
    number = instance.port_for(port)
    if number is None or not instance.addresses:
        return None
    return endpoint_at(instance, instance.addresses, number, off)


def endpoint_at(instance: Instance, addresses: tuple[str, ...], number: int, off: Off | None) -> Endpoint:
    """The endpoint of an instance at port `number`. `addresses`: the addresses of the instance to use; the first
    becomes the endpoint's main address. `off`: returns whether policies turn TLS off for workloads with these
    labels at a port; None if no policy does."""
    return Endpoint(
        address=addresses[0],
        port=number,
        extra_addresses=addresses[1:],
        labels=instance.labels,
        weight=instance.weight,
        locality=instance.locality,
        meshed=instance.intercepts(number),
        tls=instance.speaks_tls(number) and not (off is not None and off(instance.labels, number)),
        service_account=instance.service_account,
        instance=f"{instance.namespace}/{instance.name}",
    )


def written_endpoint(service: Service, written: StaticEndpoint, port: ServicePort, off: Off | None) -> Endpoint:
    number = _written_port(written, port)
    return Endpoint(
        address=written.address,
        port=number,
        labels=written.labels,
        weight=written.weight,
        locality=written.locality,
        tls=not service.external and _written_tls(written, number, off),
        service_account=written.service_account,
    )


def _written_port(written: StaticEndpoint, port: ServicePort) -> int:
    target = port.target if isinstance(port.target, int) else 0
    return dict(written.ports).get(port.name) or target or port.number


def _written_tls(written: StaticEndpoint, number: int, off: Off | None) -> bool:
    """Whether an endpoint listed in a ServiceEntry (`written`) is called at port `number` over the mesh's TLS. As for a
    WorkloadEntry, the label `security.istio.io/tlsMode` decides; without the label, the endpoint is called over TLS if
    it has a service account. `off`: returns whether policies turn TLS off for workloads with these labels at a port
    (then it is not called over TLS); None if no policy does."""
    label = dict(written.labels).get(TLS_MODE_LABEL)
    meshed = label == "istio" if label is not None else bool(written.service_account)
    return meshed and not (off is not None and off(written.labels, number))
