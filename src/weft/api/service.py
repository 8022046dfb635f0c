"""Reads Kubernetes' Service: its name, virtual addresses and ports, and the labels of the workloads behind it."""

from __future__ import annotations

from weft.api.metadata import Meta
from weft.api.protocol import service_protocol
from weft.api.reader import Fields
from weft.api.syntax import is_address, is_dns_label, is_host, words
from weft.api.traffic_distribution import read_traffic_distribution
from weft.model.names import Labels, service_host
from weft.model.service import Protocol, Resolution, Service, ServicePort, StaticEndpoint

_EXPORT_TO = "networking.istio.io/exportTo"
# Settings for cloud load balancers and kube-proxy, which the mesh ignores.
_NOT_OURS = tuple(
    words("""
    sessionAffinity sessionAffinityConfig ipFamilies ipFamilyPolicy externalIPs loadBalancerIP
    loadBalancerSourceRanges loadBalancerClass externalTrafficPolicy internalTrafficPolicy
    allocateLoadBalancerNodePorts healthCheckNodePort
    """)
)
_TYPES = ("ClusterIP", "NodePort", "LoadBalancer", "ExternalName")


def read_service(root: Fields, meta: Meta) -> tuple[Service, ...]:
    spec = root.fields("spec", required=True)
    if spec is None:
        return ()
    spec.ignored(*_NOT_OURS)
    kind = spec.choice("type", _TYPES, default="ClusterIP")
    addresses, headless = _addresses(spec)
    labels: Labels = spec.labels("selector")
    external = _external_name(spec) if kind == "ExternalName" else ""
    spec.raw("externalName")  # ignored: the field may remain from when the Service had another type
    host = service_host(meta.name, meta.namespace, meta.domain)
    return (
        Service(
            host=host,
            name=meta.name,
            namespace=meta.namespace,
            ports=_ports(spec, required=kind != "ExternalName" and not headless, external=bool(external)),
            addresses=addresses,
            selector=labels or None if not external else None,
            headless=headless,
            resolution=Resolution.DNS if external else Resolution.STATIC,
            static_endpoints=(StaticEndpoint(address=external),) if external else (),
            publish_not_ready=spec.boolean("publishNotReadyAddresses") or False,
            sliced=not external,
            distribution=read_traffic_distribution(root, meta, spec),
            labels=meta.labels,
            export_to=_export_to(root, meta),
            created=meta.created,
            origin=meta.origin,
        ),
    )


def _ports(spec: Fields, *, required: bool, external: bool) -> tuple[ServicePort, ...]:
    ports: list[ServicePort] = []
    names: set[str] = set()
    numbers: set[tuple[int, bool]] = set()
    items = spec.items("ports", required=required)
    for port in items:
        port.ignored("nodePort")
        number = port.port("port", required=True)
        name = port.checked("name", is_dns_label, "a port name", "use lower-case letters, digits and -", most=63)
        protocol = service_protocol(port, name, number)
        if len(items) > 1 and not name:
            port.lacks("name", what="a port of a service with several ports needs a `name`")
        if name and name in names:
            port.error("name", f"two ports are named `{name}`")
        if number and (number, protocol is Protocol.UDP) in numbers:
            port.error("port", f"port {number} is listed twice")
        names.add(name)
        numbers.add((number, protocol is Protocol.UDP))
        target = _target(port)
        # An ExternalName is only an alias: clients without a proxy use the same port at its target, so `targetPort` has
        # no effect.
        ports.append(ServicePort(number=number, name=name, protocol=protocol, target=0 if external else target))
    return tuple(ports)


def _target(port: Fields) -> int | str:
    if isinstance(port.raw("targetPort"), str):
        name = port.text("targetPort", most=63)
        if name.isdigit():
            port.error("targetPort", f'`targetPort` "{name}" is text', f"write the number without quotes: {name}")
        return name
    return port.port("targetPort")


def _addresses(spec: Fields) -> tuple[tuple[str, ...], bool]:
    """Return (addresses, headless): the virtual addresses of the Service, and whether it is headless."""
    hint = "write an IP address, write None for a headless service, or leave the field out"
    first = spec.checked("clusterIP", _is_address_or_none, "an IP address", hint, most=64)
    several = spec.checked_texts("clusterIPs", _is_address_or_none, "an IP address", hint, most=64)
    if first == "None" or several == ("None",):
        return (), True
    return tuple(dict.fromkeys(address for address in (first, *several) if is_address(address))), False


def _is_address_or_none(text: str) -> bool:
    return text == "None" or is_address(text)


def _external_name(spec: Fields) -> str:
    return spec.checked("externalName", is_host, "a host name", required=True, most=253).removesuffix(".")


def _export_to(root: Fields, meta: Meta) -> tuple[str, ...]:
    written = dict(meta.annotations).get(_EXPORT_TO, "")
    namespaces = tuple(part.strip() for part in written.split(",") if part.strip())
    for part in namespaces:
        if part not in (".", "*", "~") and not is_dns_label(part):
            root.error(
                ("metadata", "annotations", _EXPORT_TO),
                f"`{part}` is not a namespace",
                "use namespaces, `.` (this one), `*` (all) or `~` (none)",
            )
    return namespaces
