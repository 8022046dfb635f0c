import pytest

from api.reading import istio, told, value
from weft.model.gateway import GatewayServer, ServerTls
from weft.model.service import Protocol, ServicePort


def test_reads_a_gateway():
    found = value(
        istio(
            "Gateway",
            """
        selector: {istio: ingressgateway}
        servers:
        - port: {number: 80, name: http, protocol: HTTP}
          hosts: ["*/shop.example.com"]
          tls: {httpsRedirect: true}
        - port: {number: 15443, name: tls, protocol: TLS}
          hosts: [vault.example.com]
          tls: {mode: PASSTHROUGH}
        """,
        )
    )
    assert found.selector == (("istio", "ingressgateway"),)
    assert found.servers == (
        GatewayServer(
            ServicePort(80, "http", Protocol.HTTP), ("*/shop.example.com",), tls=ServerTls(https_redirect=True)
        ),
        GatewayServer(ServicePort(15443, "tls", Protocol.TLS), ("vault.example.com",), tls=ServerTls()),
    )


def server(text):
    return "servers: [{port: {number: 80, name: http, protocol: HTTP}, " + text + "}]"


@pytest.mark.parametrize(
    ("spec", "problems"),
    [
        ("servers: []", ["5 `servers` must not be empty"]),
        (server("hosts: []"), ["5 `hosts` must not be empty"]),
        (server("hosts: [a..b]"), ["5 `a..b` is not a host name"]),
        (
            server("hosts: ['*', '*.a', a.b., shop/web]"),
            ["5 `web` is a short name, which a Gateway cannot have (write web.DOMAIN, or `*`)"],
        ),
        (
            server("hosts: ['*'], bind: 'unix:///run/a.sock'"),
            ["5 a server on a Unix socket has no port (remove `number`, or write 0)"],
        ),
        (
            server("hosts: [a.b], defaultEndpoint: 127.0.0.1:80"),
            [
                "5 `defaultEndpoint` has no effect, as in Istio (bind a VirtualService to the Gateway)",
            ],
        ),
        (
            "servers: [{port: {number: 15021, name: a, protocol: HTTP}, hosts: [a.b]}]",
            ["5 port 15021 is reserved for the proxy (use another port)"],
        ),
        (
            "servers: [{port: {number: 53, name: a, protocol: UDP}, hosts: [a.b]}]",
            ["5 UDP is not supported: no gateway serves it"],
        ),
        (
            "servers: [{port: {number: 80, name: a, protocol: HTTP, targetPort: 8080}, hosts: [a.b]}]",
            ["5 `targetPort` has no effect in a Gateway (leave it out)"],
        ),
        (
            "servers: [{port: {number: 443, name: https, protocol: HTTPS}, hosts: [a.b]}]",
            ["5 a server of protocol HTTPS needs `tls` (for example {mode: SIMPLE, credentialName: …})"],
        ),
        (
            server("hosts: [a.b], tls: {}"),
            ["5 a server of protocol HTTP cannot have `tls` (only httpsRedirect is possible on an HTTP port)"],
        ),
        (
            "servers: [{port: {number: 80, name: a, protocol: HTTP}, hosts: [a.b]}, {port: {number: 81, name: "
            "a, protocol: HTTP}, hosts: [a.b]}]",
            ["5 two servers' ports are named `a`"],
        ),
        (
            server('hosts: ["https://a.b/c"]'),
            ["5 `https://a.b/c` is a URL, not a host (leave out the scheme and the path)"],
        ),
        (
            "servers: [{port: {number: 443, name: a, protocol: HTTPS}, hosts: [a.b], tls: {credentialName: c}}]",
            [
                "5 `credentialName` would have no effect, since `mode` is missing "
                "(write mode: SIMPLE; the default is PASSTHROUGH)"
            ],
        ),
        (
            "servers: [{port: {number: 443, name: a, protocol: HTTPS}, hosts: [a.b], tls: {caCertificates: /c}}]",
            [
                "5 `caCertificates` would have no effect, since `mode` is missing "
                "(write mode: MUTUAL; the default is PASSTHROUGH)"
            ],
        ),
        (server("hosts: [a.b], host: c"), ["5 unknown field `host` (did you mean `hosts`?)"]),
    ],
)
def test_reports_what_is_wrong(spec, problems):
    assert told(istio("Gateway", spec)) == problems
