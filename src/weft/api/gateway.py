"""Reads Istio's Gateway: the ports and hosts that gateways serve, and their TLS (`server_tls.py`)."""

from __future__ import annotations

from weft.api.metadata import Meta
from weft.api.protocol import istio_protocol
from weft.api.reader import Fields
from weft.api.server_tls import read_server_tls
from weft.api.syntax import is_address, is_dns_label, is_wildcard_host
from weft.model.gateway import Gateway, GatewayServer, ServerTls
from weft.model.proxy import OWN_PORTS
from weft.model.service import Protocol, ServicePort

_ENCRYPTED = (Protocol.HTTPS, Protocol.TLS)


def read_gateway(root: Fields, meta: Meta) -> tuple[Gateway, ...]:
    spec = root.fields("spec", required=True)
    if spec is None:
        return ()
    servers = tuple(_server(server) for server in spec.items("servers", required=True))
    names = [server.port.name for server in servers]
    for index, name in enumerate(names):
        if name and name in names[:index]:
            spec.error(("servers", index, "port", "name"), f"two servers' ports are named `{name}`")
    return (
        Gateway(
            name=meta.name,
            namespace=meta.namespace,
            servers=servers,
            selector=spec.labels("selector"),
            created=meta.created,
            origin=meta.origin,
        ),
    )


def _server(server: Fields) -> GatewayServer:
    bind = server.checked("bind", lambda text: text.startswith("unix://") or is_address(text), "an IP address")
    server.refused(
        "defaultEndpoint",
        "`defaultEndpoint` has no effect, as in Istio",
        "bind a VirtualService to the Gateway",
    )
    port = _port(server, unix=bind.startswith("unix://"))
    tls = read_server_tls(server, encrypted=port.protocol in _ENCRYPTED)
    _check_protocol(server, port, tls)
    hosts = server.texts("hosts", required=True, most=320)
    hosts = tuple(host for index, host in enumerate(hosts) if _is_host(server, index, host))
    return GatewayServer(port=port, hosts=hosts, name=server.text("name", most=253), bind=bind, tls=tls)


def _is_host(server: Fields, index: int, host: str) -> bool:
    """Return whether `host`, the entry at position `index` of the server's `hosts`, is valid. If it is not, report an
    error."""
    namespace, slash, name = host.rpartition("/")
    if "://" in host:
        what, hint = f"`{host}` is a URL, not a host", "leave out the scheme and the path"
    elif slash and namespace not in (".", "*") and not is_dns_label(namespace):
        what, hint = f"`{namespace}` is not a namespace", "use a namespace, `.` (this one) or `*` (all)"
    elif not is_wildcard_host(name):
        what, hint = f"`{name}` is not a host name", ""
    elif name != "*" and "." not in name:
        what, hint = f"`{name}` is a short name, which a Gateway cannot have", f"write {name}.DOMAIN, or `*`"
    else:
        return True
    server.error(("hosts", index), what, hint)
    return False


def _check_protocol(server: Fields, port: ServicePort, tls: ServerTls | None) -> None:
    spoken = port.protocol.value.upper()
    if port.protocol in _ENCRYPTED and tls is None:
        server.error((), f"a server of protocol {spoken} needs `tls`", "for example {mode: SIMPLE, credentialName: …}")
    elif port.protocol is Protocol.UDP:
        server.error(("port", "protocol"), "UDP is not supported: no gateway serves it")
    elif (
        tls
        and port.protocol not in (*_ENCRYPTED, Protocol.UNDECLARED)  # an undeclared protocol is reported already
        and not (tls.https_redirect and port.protocol.is_http)
    ):
        what = f"a server of protocol {spoken} cannot have `tls`"
        server.error("tls", what, "only httpsRedirect is possible on an HTTP port")


def _port(server: Fields, *, unix: bool) -> ServicePort:
    port = server.fields("port", required=True)
    if port is None:
        return ServicePort(0)
    port.refused("targetPort", "`targetPort` has no effect in a Gateway", "leave it out")
    number = port.port("number", required=not unix)
    if unix and number:
        port.error("number", "a server on a Unix socket has no port", "remove `number`, or write 0")
    if number in OWN_PORTS:
        port.error("number", f"port {number} is reserved for the proxy", "use another port")
    name = port.text("name", required=True, most=253)
    return ServicePort(number=number, name=name, protocol=istio_protocol(port, number, required=True))
