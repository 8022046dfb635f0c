"""Istio's Gateway: which ports and hosts the edge serves. TLS that a gateway itself would end is not there yet, and a
Gateway that asks for it is refused: serving it in plaintext would be worse than not serving it."""

from __future__ import annotations

from weft.api.metadata import Meta
from weft.api.protocol import istio_protocol
from weft.api.reader import Fields
from weft.api.syntax import is_dns_label, is_host
from weft.model.gateway import Gateway, GatewayServer, ServerTls
from weft.model.service import Protocol, ServicePort

_REFUSED_MODES = ("SIMPLE", "MUTUAL", "AUTO_PASSTHROUGH", "ISTIO_MUTUAL", "OPTIONAL_MUTUAL")
_VERSIONS = ("TLS_AUTO", "TLSV1_0", "TLSV1_1", "TLSV1_2", "TLSV1_3")


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
    bind = server.text("bind", most=255)
    if bind and not bind.startswith("unix://"):
        server.address("bind")
    server.unsupported("defaultEndpoint")
    port = _port(server, unix=bind.startswith("unix://"))
    tls = _tls(server)
    if port.protocol in (Protocol.HTTPS, Protocol.TLS) and tls is None:
        server.error(
            (), f"a server of protocol {port.protocol.value.upper()} needs `tls`", "for example {mode: PASSTHROUGH}"
        )
    elif (
        tls
        and port.protocol not in (Protocol.HTTPS, Protocol.TLS, Protocol.UNDECLARED)  # undeclared is an error already
        and not (tls.https_redirect and port.protocol.is_http)
    ):
        server.error(
            "tls",
            f"a server of protocol {port.protocol.value.upper()} cannot have `tls`",
            "only httpsRedirect is possible on an HTTP port",
        )
    hosts = server.texts("hosts", required=True, most=320)
    for index, host in enumerate(hosts):
        namespace, slash, name = host.rpartition("/")
        if slash and namespace not in (".", "*") and not is_dns_label(namespace):
            server.error(("hosts", index), f"`{namespace}` is not a namespace", "use `.`, `*` or a namespace")
        if not is_host(name, wildcard=True):
            server.error(("hosts", index), f"`{name}` is not a host name")
    return GatewayServer(port=port, hosts=hosts, name=server.text("name", most=253), bind=bind, tls=tls)


def _port(server: Fields, *, unix: bool) -> ServicePort:
    port = server.fields("port", required=True)
    if port is None:
        return ServicePort(0)
    port.refused("targetPort", "`targetPort` has no effect in a Gateway", "leave it out")
    number = port.port("number", required=not unix)
    name = port.text("name", required=True, most=253)
    return ServicePort(number=number, name=name, protocol=istio_protocol(port, number, required=True))


def _tls(server: Fields) -> ServerTls | None:
    tls = server.fields("tls")
    if tls is None:
        return None
    tls.ignored(
        "credentialNames",
        "tlsCertificates",
        "caCertCredentialName",
        "caCrl",
        "verifyCertificateSpki",
        "verifyCertificateHash",
    )
    mode = tls.choice("mode", ("PASSTHROUGH",), default="PASSTHROUGH", refused=_REFUSED_MODES)
    if mode != "PASSTHROUGH":
        tls.error(
            "mode" if tls.has("mode") else (),
            f"TLS mode {mode} at a gateway is not supported by this version of weft",
            "PASSTHROUGH and httpsRedirect are",
        )
    return ServerTls(
        mode=mode,
        https_redirect=tls.boolean("httpsRedirect") or False,
        credential_name=tls.text("credentialName", most=253),
        server_certificate=tls.text("serverCertificate", most=4_096),
        private_key=tls.text("privateKey", most=4_096),
        ca_certificates=tls.text("caCertificates", most=4_096),
        subject_alt_names=tls.texts("subjectAltNames"),
        minimum_version=tls.choice("minProtocolVersion", _VERSIONS),
        maximum_version=tls.choice("maxProtocolVersion", _VERSIONS),
        cipher_suites=tls.texts("cipherSuites"),
    )
