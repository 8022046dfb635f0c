"""Computes the inbound ports of a group's workloads from three inputs: the services that select the workloads, their
Sidecar, and the protocols that the instances declare. Pure functions over the registry; no state is kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec.structs import replace

from weft.mesh.claims import strength
from weft.mesh.registry import Registry
from weft.model.destination_rule import DestinationRule
from weft.model.group import Group
from weft.model.inbound_port import InboundPort
from weft.model.instance import Instance
from weft.model.service import Protocol, Service
from weft.model.sidecar import IngressListener, Sidecar

RuleOf = Callable[[str, Service, Group], DestinationRule | None]  # rule for (called host, its service, calling group)


def inbound_ports(group: Group, sidecar: Sidecar | None, registry: Registry, rule: RuleOf) -> tuple[InboundPort, ...]:
    """The inbound ports of a group: the ingress listeners of its Sidecar, if it has any; otherwise the ports of the
    services that select the group, and the ports that its instances declare. `rule` returns the DestinationRule for
    calls to a host."""
    if sidecar is not None and sidecar.ingress:
        return tuple(
            InboundPort(
                number=listener.port.number,
                protocol=_inside(listener),
                service_port=listener.port.number,
                default_endpoint=listener.default_endpoint,
                pool=listener.pool or sidecar.inbound_pool,
                tls=listener.tls,
                bind=listener.bind,
            )
            for listener in sidecar.ingress
        )
    instances = _alike(group, registry)
    ports: dict[int, InboundPort] = {}
    for service in sorted(registry.selecting(instances[0]), key=strength):
        for port in service.ports:
            if port.protocol is Protocol.UDP:
                continue
            # Pods with the same labels may serve a named port at different numbers, as during a rollout.
            for number in dict.fromkeys(instance.port_for(port) for instance in instances):
                if number in ports:
                    ports[number] = _shared(ports[number], service, port.protocol)
                elif number is not None:
                    ports[number] = InboundPort(
                        number=number,
                        protocol=port.protocol,
                        services=(service,),
                        service_port=port.number,
                        rule=rule(service.host, service, group),
                    )
    for number, protocol in dict.fromkeys(each for instance in instances for each in instance.protocols):
        before = ports.get(number)
        if before is None:
            ports[number] = InboundPort(number=number, protocol=protocol)
        elif before.carried.said == (Protocol.UNDECLARED,):
            ports[number] = replace(before, protocol=protocol)
    pool = sidecar.inbound_pool if sidecar is not None else None
    return tuple(replace(ports[number], pool=pool) for number in sorted(ports))


def _shared(known: InboundPort, service: Service, protocol: Protocol) -> InboundPort:
    others = known.others if protocol in known.carried.said else (*known.others, protocol)
    return replace(known, services=(*known.services, service), others=others)


def targets(group: Group, registry: Registry) -> Callable[[int], Iterable[int]]:
    """Return a function that maps a Service port number to the target ports of a group's workloads."""
    instances = _alike(group, registry)
    targets_of: dict[int, dict[int, None]] = {}
    for service in sorted(registry.selecting(instances[0]), key=strength):
        for port in service.ports:
            numbers = (instance.port_for(port) for instance in instances)
            targets_of.setdefault(port.number, {}).update(dict.fromkeys(each for each in numbers if each is not None))
    return lambda number: targets_of.get(number, ())


def published(group: Group, registry: Registry) -> tuple[int, ...]:
    """The ports that the instances of a gateway publish on their machine, so that clients outside the mesh can
    connect to them."""
    instances = registry.samples(group.namespace, group.labels)
    return tuple(sorted({port for instance in instances for port in instance.published}))


def _alike(group: Group, registry: Registry) -> list[Instance]:
    """One instance of the group for each distinct set of ports. If the group has no instances: a placeholder without
    ports, with the group's labels."""
    placeholder = Instance(name="", namespace=group.namespace, addresses=(), labels=group.labels)
    return registry.samples(group.namespace, group.labels) or [placeholder]


def _inside(listener: IngressListener) -> Protocol:
    """The protocol of an ingress listener. If the listener has TLS of its own, it is the protocol inside that TLS (HTTP
    for HTTPS, TCP for TLS), as in Istio; even where the proxy does not terminate this TLS, because callers use mutual
    TLS of the mesh instead."""
    after = {Protocol.HTTPS: Protocol.HTTP, Protocol.TLS: Protocol.TCP}
    return after.get(listener.port.protocol, listener.port.protocol) if listener.tls else listener.port.protocol
