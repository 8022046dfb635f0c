"""Reads Istio's Sidecar: the listeners and visible hosts of proxies, for a namespace or some of its workloads."""

from __future__ import annotations

from weft.api.http_route import read_destination
from weft.api.metadata import Meta, selector
from weft.api.protocol import istio_protocol
from weft.api.reader import Fields
from weft.api.server_tls import read_server_tls
from weft.api.syntax import is_dns_label, is_port, is_wildcard_host
from weft.api.traffic_policy import read_pool
from weft.model.gateway import ServerTls, ServerTlsMode
from weft.model.service import Protocol, ServicePort
from weft.model.sidecar import EgressListener, IngressListener, Outbound, OutboundPolicy, Sidecar

_LOCAL = ("", "127.0.0.1", "0.0.0.0", "[::1]", "[::]")

_AT_GATEWAYS_ONLY = (
    "credentialName",
    "credentialNames",
    "caCertCredentialName",
    "tlsCertificates",
    "subjectAltNames",
    "httpsRedirect",
)


def read_sidecar(root: Fields, meta: Meta) -> tuple[Sidecar, ...]:
    spec = root.fields("spec", required=True)
    if spec is None:
        return ()
    settings = ("egress", "ingress", "outboundTrafficPolicy", "inboundConnectionPool")
    if not any(spec.has(name) for name in settings):
        hint = "set `egress`, `ingress` or `outboundTrafficPolicy`"
        spec.lacks(*settings, what="the Sidecar sets nothing", hint=hint)
    return (
        Sidecar(
            name=meta.name,
            namespace=meta.namespace,
            selector=selector(spec, "workloadSelector") or None,
            egress=_egress(spec),
            ingress=_ingress(spec),
            outbound_policy=_outbound(spec, meta),
            inbound_pool=read_pool(spec, "inboundConnectionPool", to_workload=True),
            created=meta.created,
            origin=meta.origin,
        ),
    )


def outbound_policy(fields: Fields) -> OutboundPolicy | None:
    """Read the `outboundTrafficPolicy` of a MeshConfig; None if the field is not set."""
    policy = fields.fields("outboundTrafficPolicy")
    if policy is None:
        return None
    policy.refused("egressProxy", "only a Sidecar can have an `egressProxy`", "use a Sidecar in the root namespace")
    return _mode(policy)


def _outbound(spec: Fields, meta: Meta) -> Outbound | None:
    policy = spec.fields("outboundTrafficPolicy")
    if policy is None:
        return None
    mode, proxy = _mode(policy), policy.fields("egressProxy")
    if proxy is None:
        return mode
    if mode is not OutboundPolicy.ALLOW_ANY:
        policy.error(
            "egressProxy",
            "`egressProxy` needs `mode: ALLOW_ANY`",
            "without `mode: ALLOW_ANY`, calls to unknown hosts are rejected",
        )
    if not proxy.has("port"):
        proxy.lacks("port", what="`egressProxy` needs a port", hint="for example port: {number: 8080}")
    return read_destination(proxy, meta)


def _mode(policy: Fields) -> OutboundPolicy:
    # A policy without `mode` has protobuf's default, which is REGISTRY_ONLY.
    return OutboundPolicy(policy.choice("mode", tuple(OutboundPolicy), default=OutboundPolicy.REGISTRY_ONLY))


def _egress(spec: Fields) -> tuple[EgressListener, ...]:
    listeners: list[EgressListener] = []
    items = spec.items("egress")
    for item in items:
        port = item.fields("port")
        _refuse_binding(item)
        read = _port(port, well_known=False) if port else None
        if read is None and item is not items[-1]:
            what = "the egress listener without a port must be the last one, and there can be only one"
            item.lacks("port", what=what)
        if read and read.number and any(other.port and other.port.number == read.number for other in listeners):
            item.error("port", f"port {read.number} is listed twice")
        hosts = item.texts("hosts", required=True, most=320)
        hosts = tuple(host for index, host in enumerate(hosts) if _is_host(item, index, host))
        listeners.append(EgressListener(hosts=hosts, port=read))
    return tuple(listeners)


def _is_host(item: Fields, index: int, host: str) -> bool:
    """Return whether `host`, the entry at position `index` of the listener's `hosts`, is valid. If it is not, report an
    error."""
    namespace, slash, name = host.partition("/")
    if not slash:
        what, hint = f"`{host}` must be NAMESPACE/HOST", f"write ./{host} for this namespace, */{host} for any"
    elif namespace not in (".", "*", "~") and not is_dns_label(namespace):
        what = f"`{namespace}` is not a namespace"
        hint = "use a namespace, `.` (this one), `*` (all) or `~` (none)"
    elif not is_wildcard_host(name):
        what, hint = f"`{name}` is not a host name", ""
    else:
        return True
    item.error(("hosts", index), what, hint)
    return False


def _ingress(spec: Fields) -> tuple[IngressListener, ...]:
    listeners: list[IngressListener] = []
    for item in spec.items("ingress"):
        port = item.fields("port", required=True)
        read = _port(port, well_known=True) if port else ServicePort(0)
        if read.number and any(other.port.number == read.number for other in listeners):
            item.error("port", f"port {read.number} is listed twice")
        _refuse_binding(item)
        pool = read_pool(item, "connectionPool", to_workload=True)
        listeners.append(IngressListener(read, _endpoint(item), pool, _server_tls(item, read)))
    return tuple(listeners)


def _server_tls(item: Fields, port: ServicePort) -> ServerTls | None:
    """Read the `tls` of `item`, an ingress listener at `port`: the TLS that the proxy terminates for its workload. As
    in Istio, its certificates are files. None if the proxy terminates no TLS there."""
    encrypted = port.protocol in (Protocol.HTTPS, Protocol.TLS)
    server_tls = read_server_tls(item, encrypted=encrypted, impossible=_AT_GATEWAYS_ONLY)
    if server_tls is None:
        return None
    if not encrypted:
        item.error("tls", "`tls` needs a port of protocol HTTPS or TLS", "set `protocol` of the port")
    if server_tls.mode is ServerTlsMode.ISTIO_MUTUAL:
        what, hint = (
            "ISTIO_MUTUAL is not possible in a Sidecar",
            "leave it out: a PeerAuthentication requires mutual TLS",
        )
        item.error(("tls", "mode"), what, hint)
    return server_tls if server_tls.terminates else None


def _port(port: Fields, *, well_known: bool) -> ServicePort:
    """Read a port of a listener. `well_known`: if `protocol` is not set, a well-known port number decides the
    protocol."""
    number = port.port("number", required=True)
    port.text("name", most=63)  # a valid field without effect
    port.refused("targetPort", "`targetPort` has no effect in a Sidecar", "leave it out")
    return ServicePort(number=number, protocol=istio_protocol(port, number if well_known else 0))


def _refuse_binding(item: Fields) -> None:
    """Report settings that would bind a listener to an address of its own. weft intercepts all calls and selects the
    listener by their destination, so its listeners are not bound."""
    hint = "leave it out: calls to any address are intercepted"
    item.refused("bind", "a listener with an address of its own is not supported by this version of weft", hint)
    if item.choice("captureMode", ("DEFAULT", "IPTABLES"), refused=("NONE",)) == "NONE":
        item.error("captureMode", "with `captureMode: NONE` a listener must be bound, which weft does not do", hint)


def _endpoint(item: Fields) -> str:
    endpoint = item.text("defaultEndpoint", most=255)
    if not endpoint or endpoint.startswith("unix:///"):
        return endpoint
    host, _, port = endpoint.rpartition(":")
    if host in _LOCAL and is_port(port):
        return endpoint
    item.error(
        "defaultEndpoint",
        f"`{endpoint}` is not a local address with a port",
        "write 127.0.0.1:PORT, 0.0.0.0:PORT, [::1]:PORT, [::]:PORT or unix:///PATH",
    )
    return ""
