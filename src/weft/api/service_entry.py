"""Reads Istio's ServiceEntry: hosts that have no Kubernetes Service and that the mesh can call. Each host becomes one
Service of the model."""

from __future__ import annotations

from weft.api.metadata import Meta, export_to, selector
from weft.api.protocol import istio_protocol
from weft.api.reader import Fields
from weft.api.syntax import is_dns_label, is_wildcard_host
from weft.api.traffic_distribution import read_traffic_distribution
from weft.api.workload_entry import read_endpoint
from weft.model.service import Protocol, Resolution, Service, ServicePort, StaticEndpoint

_RESOLUTIONS = {
    "NONE": Resolution.NONE,
    "STATIC": Resolution.STATIC,
    "DNS": Resolution.DNS,
    "DNS_ROUND_ROBIN": Resolution.DNS_ROUND_ROBIN,
    "DYNAMIC_DNS": Resolution.DYNAMIC_DNS,
}
_BY_NAME = (Resolution.DNS, Resolution.DNS_ROUND_ROBIN)
_DYNAMIC = (Protocol.HTTP, Protocol.HTTP2, Protocol.GRPC, Protocol.TLS)


def read_service_entry(root: Fields, meta: Meta) -> tuple[Service, ...]:
    spec = root.fields("spec", required=True)
    if spec is None:
        return ()
    resolution = _resolution(spec)
    location = spec.choice("location", ("MESH_EXTERNAL", "MESH_INTERNAL"), default="MESH_EXTERNAL")
    hosts = _hosts(spec)
    ports = _ports(spec)
    endpoints = _endpoints(spec, ports, resolution)
    labels = selector(spec, "workloadSelector")
    addresses = spec.ranges("addresses")
    names = spec.texts("subjectAltNames")
    exported = export_to(spec, meta, no_namespace=True)
    distribution = read_traffic_distribution(root, meta)
    _check(spec, hosts, ports, resolution, addresses)
    return tuple(
        Service(
            host=host,
            name=meta.name,
            namespace=meta.namespace,
            ports=ports,
            addresses=addresses,
            selector=labels,
            resolution=resolution,
            external=location == "MESH_EXTERNAL",
            # If there are no endpoints, the host itself is the endpoint.
            static_endpoints=endpoints
            or ((StaticEndpoint(address=host),) if resolution in _BY_NAME and labels is None else ()),
            subject_alt_names=names,
            distribution=distribution,
            labels=meta.labels,
            export_to=exported,
            created=meta.created,
            origin=meta.origin,
        )
        for host in hosts
    )


def _resolution(spec: Fields) -> Resolution:
    chosen = spec.choice("resolution", _RESOLUTIONS, default="NONE")
    return _RESOLUTIONS.get(chosen, Resolution.NONE)


def _hosts(spec: Fields) -> tuple[str, ...]:
    hosts: list[str] = []
    for index, host in spec.numbered_texts("hosts", is_wildcard_host, "a host name", required=True):
        if host == "*":
            spec.error(("hosts", index), "a service entry cannot be for `*`", "name the hosts, or `*.example.com`")
        elif host in hosts:
            spec.error(("hosts", index), f"`{host}` is listed twice")
        else:
            hosts.append(host)
    return tuple(hosts)


def _ports(spec: Fields) -> tuple[ServicePort, ...]:
    ports: list[ServicePort] = []
    for port in spec.items("ports"):
        number, hint = port.port("number", required=True), "use lower-case letters, digits and -"
        name = port.checked("name", is_dns_label, "a port name", hint, required=True, most=63)
        if name and any(other.name == name for other in ports):
            port.error("name", f"two ports are named `{name}`")
        if number and any(other.number == number for other in ports):
            port.error("number", f"port {number} is listed twice")
        ports.append(ServicePort(number, name, istio_protocol(port, number), port.port("targetPort")))
    return tuple(ports)


def _endpoints(spec: Fields, ports: tuple[ServicePort, ...], resolution: Resolution) -> tuple[StaticEndpoint, ...]:
    items = spec.items("endpoints")
    endpoints = []
    for item in items:
        endpoint = read_endpoint(item, names_allowed=resolution is not Resolution.STATIC)
        for name, _ in endpoint.ports:
            if all(port.name != name for port in ports):
                item.error(("ports", name), f"the service entry has no port named `{name}`")
        if endpoint.address.startswith("unix://") and (resolution is not Resolution.STATIC or len(ports) != 1):
            item.error("address", "a Unix socket needs `resolution: STATIC` and exactly one port")
        endpoints.append(endpoint)
    if items and spec.has("workloadSelector"):
        spec.error("endpoints", "only one of `endpoints`, `workloadSelector` may be set")
    if items and resolution is Resolution.NONE:
        spec.error(
            "endpoints",
            "with `resolution: NONE` the address that the application chose is called, so there can be no endpoints",
            "set `resolution: STATIC` or DNS",
        )
    if len(items) > 1 and resolution is Resolution.DNS_ROUND_ROBIN:
        spec.error("endpoints", "with `resolution: DNS_ROUND_ROBIN` there can be at most one endpoint")
    return tuple(endpoints)


def _check_dynamic(spec: Fields, hosts: tuple[str, ...], ports: tuple[ServicePort, ...]) -> None:
    """Check an entry with `resolution: DYNAMIC_DNS`, for which a proxy resolves the host that each request names. So,
    as in Istio, its `hosts` must be wildcards, and its `ports` must have a protocol in which a request names a host.
    `addresses`, `endpoints` and `workloadSelector` are errors, and a `targetPort` gets a warning."""
    for index, host in enumerate(hosts):
        if not host.startswith("*"):
            what = f"with `resolution: DYNAMIC_DNS` a host must be a wildcard, and `{host}` is not one"
            spec.error(("hosts", index), what, "for one host set `resolution: DNS`")
    for name in ("addresses", "endpoints", "workloadSelector"):
        if spec.has(name):
            what = f"with `resolution: DYNAMIC_DNS` the proxy resolves the called host: `{name}` is not possible"
            spec.error(name, what)
    for index, port in enumerate(ports):
        if port.protocol not in _DYNAMIC:
            name = port.protocol.value.upper()
            what = f"`resolution: DYNAMIC_DNS` does not support {name}: its connections name no host"
            spec.error(("ports", index), what, "use HTTP, HTTP2, GRPC or TLS")
        elif port.target not in (0, port.number):
            what = "with `resolution: DYNAMIC_DNS` the called port is used, so `targetPort` has no effect"
            spec.warning(("ports", index), what)


def _check(
    spec: Fields,
    hosts: tuple[str, ...],
    ports: tuple[ServicePort, ...],
    resolution: Resolution,
    addresses: tuple[str, ...],
) -> None:
    if resolution is Resolution.DYNAMIC_DNS:
        _check_dynamic(spec, hosts, ports)
        return
    if resolution in _BY_NAME:
        if not spec.has("endpoints") and any(host.startswith("*") for host in hosts):
            spec.error("hosts", "a wildcard cannot be resolved by DNS", "list `endpoints`, or set `resolution: NONE`")
        if any("/" in address for address in addresses):
            spec.error("addresses", "a range of addresses needs `resolution: NONE` or STATIC")
    raw = [port for port in ports if not port.protocol.is_http and port.protocol.value not in ("tls", "https")]
    if resolution is not Resolution.NONE and len(hosts) > 1 and raw:
        spec.error(
            "hosts",
            f"port {raw[0].number} is not HTTP or TLS, so several hosts cannot be distinguished",
            "write one ServiceEntry per host",
        )
    # Only these entries have no address: others may get one from the mesh, and STATIC ones have those of their
    # endpoints.
    nameless = resolution is Resolution.NONE or (
        resolution is not Resolution.STATIC and any(host.startswith("*") for host in hosts)
    )
    if raw and nameless and not spec.has("addresses") and not spec.report.failed:
        spec.warning(
            "ports",
            f"port {raw[0].number} is not HTTP or TLS, and there are no `addresses`: "
            f"this ServiceEntry gets every connection to port {raw[0].number}, whatever the host",
            "list the addresses",
            code="WFT0306",
        )
