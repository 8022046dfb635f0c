"""Reads Istio's Sidecar: the listeners and visible hosts of proxies, for a namespace or some of its workloads."""

from __future__ import annotations

from weft.api.http_route import read_destination
from weft.api.metadata import Meta, selector
from weft.api.protocol import istio_protocol
from weft.api.reader import Fields
from weft.api.server_tls import read_server_tls
from weft.api.syntax import is_address, is_dns_label, is_port, is_wildcard_host
from weft.api.traffic_policy import read_pool
from weft.model.gateway import ServerTls, ServerTlsMode
from weft.model.proxy import TAKEN_PORTS
from weft.model.service import Protocol, ServicePort
from weft.model.sidecar import EVERY_ADDRESS, EgressListener, IngressListener, Outbound, OutboundPolicy, Sidecar

_PATH = "unix:///"
_LONGEST_PATH = 107  # bytes of a Unix socket's path, without its final zero
_LOOPBACK = "127.0.0.1"
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
        bind, captured = _egress_place(item)
        is_path = bind.startswith(_PATH)
        read = _port(port, well_known=False, numbered=not is_path) if port else None
        if is_path and (read is None or read.number):
            item.error("bind", "a Unix socket needs `port` without a number", "write port: {number: 0, protocol: HTTP}")
        if not captured and read and read.number in TAKEN_PORTS:
            item.error(("port", "number"), f"the proxy itself uses port {read.number}", "choose another port")
        if read is None and item is not items[-1]:
            what = "the egress listener without a port must be the last one, and there can be only one"
            item.lacks("port", what=what)
        if read and read.number and any(other.port and other.port.number == read.number for other in listeners):
            item.error("port", f"port {read.number} is listed twice")
        hosts = item.texts("hosts", required=True, most=320)
        hosts = tuple(host for index, host in enumerate(hosts) if _is_host(item, index, host))
        if bind and any(other.bind == bind and other.port == read for other in listeners):
            item.error("bind", f"`{bind}` is listed twice")
        listeners.append(EgressListener(hosts=hosts, port=read, bind=bind, captured=captured))
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
        pool = read_pool(item, "connectionPool", to_workload=True)
        endpoint = _endpoint(item)
        listeners.append(
            IngressListener(read, endpoint, _ingress_bind(item, read, endpoint), pool, _server_tls(item, read))
        )
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


def _port(port: Fields, *, well_known: bool, numbered: bool = True) -> ServicePort:
    """Read a port of a listener. `well_known`: if `protocol` is not set, a well-known port number decides the
    protocol. `numbered`: whether the port has a number; that of a Unix socket has none, or 0."""
    number = port.port("number", required=True) if numbered else port.integer("number", least=0, most=65535) or 0
    port.text("name", most=63)  # a valid field without effect
    port.refused("targetPort", "`targetPort` has no effect in a Sidecar", "leave it out")
    return ServicePort(number=number, protocol=istio_protocol(port, number if well_known else 0))


def _capture_mode(item: Fields) -> bool:
    """Read `captureMode` of a listener. Return whether calls are intercepted; true if the field is not set."""
    return item.choice("captureMode", ("DEFAULT", "IPTABLES", "NONE"), default="DEFAULT") != "NONE"


def _egress_place(item: Fields) -> tuple[str, bool]:
    """Read `bind` and `captureMode` of `item`, an egress listener. Return (address, captured): the listener's own
    address, or "" if hosts are called at the addresses of their services; and whether calls are intercepted. If they
    are not, the proxy itself listens at the address, which is by default the loopback address, as in Istio."""
    bind, captured = item.text("bind", most=255), _capture_mode(item)
    if bind.startswith(_PATH):
        if item.text("captureMode") == "IPTABLES":
            item.error("captureMode", "calls to a Unix socket are not intercepted", "leave it out")
        if len(bind) - len("unix://") > _LONGEST_PATH:
            item.error("bind", f"the path of a Unix socket has at most {_LONGEST_PATH} characters")
        return bind, False
    if bind and not is_address(bind):
        item.error("bind", f"`{bind}` is not an IP address", "write an IP address, or unix:///PATH")
        return "", captured
    return bind or ("" if captured else _LOOPBACK), captured


def _ingress_bind(item: Fields, port: ServicePort, endpoint: str) -> str:
    """Read `bind` and `captureMode` of `item`, an ingress listener at `port`. Return the address at which the proxy
    itself listens; "" if calls are intercepted: as in Istio, `bind` then has no effect. `endpoint`: the
    `defaultEndpoint` of the listener. If the proxy itself listens at `port`, the application cannot, so `endpoint` must
    then be another port."""
    bind = item.text("bind", most=255)
    if bind and not is_address(bind):
        item.error("bind", f"`{bind}` is not an IP address", "for example 0.0.0.0")
    if _capture_mode(item):
        return ""
    if not endpoint or endpoint.rpartition(":")[2] == str(port.number):
        what = f"with `captureMode: NONE` the proxy listens on port {port.number}, so the application cannot"
        item.error("defaultEndpoint" if endpoint else "captureMode", what, "set `defaultEndpoint` to another port")
    if port.number in TAKEN_PORTS:
        item.error(("port", "number"), f"the proxy itself uses port {port.number}", "choose another port")
    return bind or EVERY_ADDRESS


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
