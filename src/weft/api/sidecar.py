"""Istio's Sidecar: what the proxies of a namespace, or of some workloads in it, listen to and see."""

from __future__ import annotations

from weft.api.metadata import Meta, selector
from weft.api.protocol import istio_protocol
from weft.api.reader import Fields
from weft.api.syntax import is_dns_label, is_host
from weft.model.service import ServicePort
from weft.model.sidecar import EgressListener, IngressListener, OutboundPolicy, Sidecar

_CAPTURE_MODES = ("DEFAULT", "IPTABLES", "NONE")
_LOCAL = ("", "127.0.0.1", "0.0.0.0", "[::1]", "[::]")


def read_sidecar(root: Fields, meta: Meta) -> tuple[Sidecar, ...]:
    spec = root.fields("spec", required=True)
    if spec is None:
        return ()
    spec.unsupported("inboundConnectionPool")
    says = ("egress", "ingress", "outboundTrafficPolicy", "inboundConnectionPool")
    if not any(spec.has(name) for name in says):
        hint = "set `egress`, `ingress` or `outboundTrafficPolicy`"
        spec.lacks(*says, what="the Sidecar says nothing", hint=hint)
    return (
        Sidecar(
            name=meta.name,
            namespace=meta.namespace,
            selector=selector(spec, "workloadSelector") or None,
            egress=_egress(spec),
            ingress=_ingress(spec),
            outbound_policy=outbound_policy(spec),
            created=meta.created,
            origin=meta.origin,
        ),
    )


def outbound_policy(fields: Fields) -> OutboundPolicy | None:
    """`outboundTrafficPolicy`, which MeshConfig has too."""
    policy = fields.fields("outboundTrafficPolicy")
    if policy is None:
        return None
    policy.unsupported("egressProxy")
    # An object without a mode is protobuf's zero, which is REGISTRY_ONLY.
    return OutboundPolicy(policy.choice("mode", tuple(OutboundPolicy), default=OutboundPolicy.REGISTRY_ONLY))


def _egress(spec: Fields) -> tuple[EgressListener, ...]:
    found: list[EgressListener] = []
    items = spec.items("egress")
    for item in items:
        port = item.fields("port")
        bind, mode = _bind(item), _capture_mode(item)
        read = _port(port, unix=bind.startswith("unix://")) if port else None
        if read is None and item is not items[-1]:
            what = "the egress listener without a port must be the last one, and there can be only one"
            item.lacks("port", what=what)
        if read and read.number and any(other.port and other.port.number == read.number for other in found):
            item.error("port", f"port {read.number} stands twice")
        hosts = item.texts("hosts", required=True, most=320)
        for index, host in enumerate(hosts):
            _check_host(item, index, host)
        found.append(EgressListener(hosts=hosts, port=read, bind=bind, capture_mode=mode))
    return tuple(found)


def _check_host(item: Fields, index: int, host: str) -> None:
    namespace, slash, name = host.partition("/")
    if not slash:
        item.error(
            ("hosts", index), f"`{host}` must be NAMESPACE/HOST", f"./{host} for this namespace, */{host} for any"
        )
    elif namespace not in (".", "*", "~") and not is_dns_label(namespace):
        item.error(("hosts", index), f"`{namespace}` is not a namespace", "use `.`, `*`, `~` or a namespace")
    elif not is_host(name, wildcard=True):
        item.error(("hosts", index), f"`{name}` is not a host name")


def _ingress(spec: Fields) -> tuple[IngressListener, ...]:
    found: list[IngressListener] = []
    for item in spec.items("ingress"):
        item.refused("tls", "TLS of a sidecar's ingress is not supported by this version of weft")
        item.unsupported("connectionPool")
        port = item.fields("port", required=True)
        read = _port(port, unix=False) if port else ServicePort(0)
        if read.number and any(other.port.number == read.number for other in found):
            item.error("port", f"port {read.number} stands twice")
        bind, mode = _bind(item), _capture_mode(item)
        found.append(IngressListener(port=read, default_endpoint=_endpoint(item), bind=bind, capture_mode=mode))
    return tuple(found)


def _port(port: Fields, *, unix: bool) -> ServicePort:
    number = port.port("number", required=not unix)
    name = port.text("name", most=63)
    port.refused("targetPort", "`targetPort` has no effect in a Sidecar", "leave it out")
    return ServicePort(number=number, name=name, protocol=istio_protocol(port, number))


def _bind(item: Fields) -> str:
    bind = item.text("bind", most=255)
    if bind and not bind.startswith("unix://"):
        item.address("bind")
    item.unsupported("bind")
    return bind


def _capture_mode(item: Fields) -> str:
    mode = item.choice("captureMode", _CAPTURE_MODES)
    if mode == "NONE":
        item.warning("captureMode", "`captureMode: NONE` is not acted on by this version of weft: all is intercepted")
    return mode


def _endpoint(item: Fields) -> str:
    endpoint = item.text("defaultEndpoint", most=255)
    if not endpoint or endpoint.startswith("unix:///"):
        return endpoint
    host, _, port = endpoint.rpartition(":")
    if host not in _LOCAL or not port.isdecimal() or not 1 <= int(port[:6]) <= 65_535:
        item.error(
            "defaultEndpoint",
            f"`{endpoint}` is not a local address with a port",
            "127.0.0.1:PORT, 0.0.0.0:PORT, [::1]:PORT, [::]:PORT or unix:///PATH",
        )
    return endpoint
