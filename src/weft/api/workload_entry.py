"""Reads Istio's WorkloadEntry: a workload outside the cluster with an address, such as a VM. The endpoints of a
ServiceEntry have the same fields.

An entry counts as meshed, that is, as a workload with a proxy of the mesh, if its label `security.istio.io/tlsMode` is
`istio`. Without that label, it counts as meshed if it names a service account, because only a workload of the mesh has
the identity of a service account. Istio decides in the same way.
"""

from __future__ import annotations

from weft.api.metadata import Meta
from weft.api.reader import Fields
from weft.api.syntax import is_address, is_dns_label, is_host, is_host_or_address
from weft.model.instance import TLS_MODE_LABEL, Instance
from weft.model.names import labels_of
from weft.model.service import StaticEndpoint


def read_workload_entry(root: Fields, meta: Meta) -> tuple[Instance, ...]:
    spec = root.fields("spec", required=True)
    if spec is None:
        return ()
    entry = read_endpoint(spec)
    labels = {**dict(entry.labels), **dict(meta.labels)}  # labels in `metadata` have precedence, as in Istio
    mode = labels.get(TLS_MODE_LABEL)
    return (
        Instance(
            name=meta.name,
            namespace=meta.namespace,
            addresses=(entry.address,) if entry.address else (),
            labels=labels_of(labels),
            service_account=entry.service_account or "default",
            ports=entry.ports,
            meshed=mode == "istio" if mode is not None else bool(entry.service_account),
            weight=entry.weight,
            locality=entry.locality,
            network=entry.network,
            workload=meta.name,
            named=is_host(entry.address) and not is_address(entry.address),
            origin=meta.origin,
        ),
    )


def read_endpoint(spec: Fields, *, names_allowed: bool = True) -> StaticEndpoint:
    ports = _ports(spec)
    what = "weft supports only one network, in which all workloads can be reached: `network` would have no effect"
    spec.refused("network", what, "leave it out")
    return StaticEndpoint(
        address=_address(spec, names_allowed=names_allowed, has_ports=bool(ports)),
        ports=ports,
        labels=spec.labels("labels"),
        weight=spec.integer("weight") or 1,
        locality=spec.text("locality", most=253),
        service_account=spec.text("serviceAccount", most=253),
    )


def _address(spec: Fields, *, names_allowed: bool, has_ports: bool) -> str:
    written = spec.raw("address")
    if isinstance(written, str) and written.startswith("unix://"):
        if has_ports:
            spec.error("ports", "a Unix socket has no ports")
        return spec.checked("address", _is_socket, "unix:// and the absolute path of a socket")
    if not names_allowed:
        hint = "for host names, set `resolution: DNS`"
        return spec.checked("address", is_address, "an IP address", hint, required=True)
    return spec.checked("address", is_host_or_address, "an IP address or a host name", required=True)


def _is_socket(address: str) -> bool:
    path = address.removeprefix("unix://")
    return path.startswith(("/", "@")) and not path.endswith("/")


def _ports(spec: Fields) -> tuple[tuple[str, int], ...]:
    fields = spec.fields("ports")
    if fields is None:
        return ()
    raw = spec.raw("ports")
    ports = []
    for name in raw:
        number = fields.port(str(name))
        if not is_dns_label(str(name)):
            fields.error((str(name),), f"`{str(name)[:80]}` is not a port name")
        elif number:
            ports.append((str(name), number))
    return tuple(sorted(ports))
