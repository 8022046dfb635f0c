import pytest

from api.reading import istio, told, value
from weft.model.destination_rule import ConnectionPool
from weft.model.service import Protocol, ServicePort
from weft.model.sidecar import EgressListener, IngressListener, OutboundPolicy
from weft.model.virtual_service import Destination


def test_reads_a_sidecar():
    found = value(
        istio(
            "Sidecar",
            """
        workloadSelector: {labels: {app: frontend}}
        outboundTrafficPolicy: {mode: REGISTRY_ONLY}
        ingress:
        - port: {number: 9080, protocol: HTTP, name: http-in}
          defaultEndpoint: 127.0.0.1:8080
        egress:
        - port: {number: 5432, protocol: TCP, name: db}
          hosts: [warehouse/inventory.warehouse.svc.cluster.local]
        - hosts: [./*, sales/orders.sales.svc.cluster.local]
        """,
        )
    )
    assert found.selector == (("app", "frontend"),)
    assert found.outbound_policy is OutboundPolicy.REGISTRY_ONLY
    assert found.ingress == (IngressListener(ServicePort(9080, protocol=Protocol.HTTP), "127.0.0.1:8080"),)
    assert found.egress == (
        EgressListener(("warehouse/inventory.warehouse.svc.cluster.local",), ServicePort(5432, protocol=Protocol.TCP)),
        EgressListener(("./*", "sales/orders.sales.svc.cluster.local")),
    )


def test_a_sidecar_for_the_whole_namespace():
    assert value(istio("Sidecar", "egress: [{hosts: ['./*']}]")).selector is None


def test_a_policy_without_a_mode_is_registry_only():
    assert value(istio("Sidecar", "outboundTrafficPolicy: {}")).outbound_policy is OutboundPolicy.REGISTRY_ONLY


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ("{}", "4 the Sidecar sets nothing (set `egress`, `ingress` or `outboundTrafficPolicy`)"),
        ("egress: [{hosts: [a.b]}]", "5 `a.b` must be NAMESPACE/HOST (write ./a.b for this namespace, */a.b for any)"),
        ("egress: [{hosts: []}]", "5 `hosts` must not be empty"),
        (
            "egress: [{hosts: [./*]}, {hosts: [./*]}]",
            "5 the egress listener without a port must be the last one, and there can be only one",
        ),
        (
            "ingress: [{port: {number: 80, protocol: HTTP}}, {port: {number: 80, protocol: HTTP}}]",
            "5 port 80 is listed twice",
        ),
        (
            "ingress: [{port: {number: 80, protocol: HTTP}, defaultEndpoint: '10.0.0.1:80'}]",
            "5 `10.0.0.1:80` is not a local address with a port "
            "(write 127.0.0.1:PORT, 0.0.0.0:PORT, [::1]:PORT, [::]:PORT or unix:///PATH)",
        ),
        (
            "ingress: [{port: {number: 80, protocol: HTTP}, tls: {mode: SIMPLE}}]",
            "5 `tls` needs a port of protocol HTTPS or TLS (set `protocol` of the port)",
        ),
        (
            "ingress: [{port: {number: 443, protocol: HTTPS}, tls: {mode: SIMPLE, credentialName: a}}]",
            "5 `credentialName` is not possible here (use `serverCertificate` and `privateKey`)",
        ),
        (
            "ingress: [{port: {number: 443, protocol: HTTPS}, tls: {mode: ISTIO_MUTUAL}}]",
            "5 ISTIO_MUTUAL is not possible in a Sidecar (leave it out: a PeerAuthentication requires mutual TLS)",
        ),
        (
            "ingress: [{port: {number: 443, protocol: HTTPS}, tls: {mode: SIMPLE}}]",
            "5 `mode: SIMPLE` needs a certificate (set `credentialName`, or `serverCertificate` and `privateKey`)",
        ),
        ("outboundTrafficPolicy: {mode: REGISTRY}", "5 `mode` cannot be `REGISTRY` (did you mean `REGISTRY_ONLY`?)"),
        ("inboundConnectionPool: {}", "5 `inboundConnectionPool` sets nothing (set `tcp` or `http`)"),
        (
            "inboundConnectionPool: {http: {h2UpgradePolicy: UPGRADE}}",
            "5 towards its own workload a proxy uses the declared protocol of the port, and upgrades nothing "
            "(declare the port HTTP2 or GRPC)",
        ),
        (
            "ingress: [{port: {number: 80, protocol: HTTP}, connectionPool: {http: {h2UpgradePolicy: UPGRADE}}}]",
            "5 towards its own workload a proxy uses the declared protocol of the port, and upgrades nothing "
            "(declare the port HTTP2 or GRPC)",
        ),
        (
            "outboundTrafficPolicy: {mode: ALLOW_ANY, egressProxy: {host: a}}",
            "5 `egressProxy` needs a port (for example port: {number: 8080})",
        ),
        (
            "outboundTrafficPolicy: {mode: REGISTRY_ONLY, egressProxy: {host: a, port: {number: 80}}}",
            "5 `egressProxy` needs `mode: ALLOW_ANY` (without `mode: ALLOW_ANY`, calls to unknown hosts are rejected)",
        ),
        (
            "egress: [{hosts: ['./*'], bind: localhost}]",
            "5 `localhost` is not an IP address (write an IP address, or unix:///PATH)",
        ),
        (
            "egress: [{hosts: ['./*'], port: {number: 80, protocol: HTTP}, bind: unix:///run/x}]",
            "5 a Unix socket needs `port` without a number (write port: {number: 0, protocol: HTTP})",
        ),
        (
            "egress: [{hosts: ['./*'], port: {number: 0, protocol: HTTP}, captureMode: NONE}]",
            "5 `number` must be between 1 and 65535, not 0",
        ),
        (
            "egress: [{hosts: ['./*'], port: {number: 0, protocol: HTTP}, bind: unix:///x, captureMode: IPTABLES}]",
            "5 calls to a Unix socket are not intercepted (leave it out)",
        ),
        (
            "egress: [{hosts: ['./*'], port: {number: 15006, protocol: TCP}, captureMode: NONE}]",
            "5 the proxy itself uses port 15006 (choose another port)",
        ),
        (
            "ingress: [{port: {number: 80, protocol: HTTP}, bind: here, defaultEndpoint: '127.0.0.1:8080'}]",
            "5 `here` is not an IP address (for example 0.0.0.0)",
        ),
        *(
            (
                f"ingress: [{{port: {{number: 80, protocol: HTTP}}, captureMode: NONE{endpoint}}}]",
                "5 with `captureMode: NONE` the proxy listens on port 80, so the application cannot "
                "(set `defaultEndpoint` to another port)",
            )
            for endpoint in ("", ", defaultEndpoint: '127.0.0.1:80'")
        ),
    ],
)
def test_reports_what_is_wrong(spec, problem):
    assert told(istio("Sidecar", spec)) == [problem]


def test_a_listener_may_have_an_address_of_its_own():
    sidecar = value(
        istio(
            "Sidecar",
            """
        egress:
        - {hosts: [./a], port: {number: 81}, captureMode: NONE}
        - {hosts: [./b], port: {number: 82}, bind: 192.0.2.1}
        - {hosts: [./c], port: {number: 0, protocol: TCP}, bind: unix:///s}
        - {hosts: [./d]}
        ingress:
        - {port: {number: 80}, captureMode: NONE, defaultEndpoint: '127.0.0.1:8080'}
        - {port: {number: 81}, bind: 192.0.2.1}
        """,
        )
    )
    assert [(each.bind, each.captured) for each in sidecar.egress] == [
        *(("127.0.0.1", False), ("192.0.2.1", True)),
        *(("unix:///s", False), ("", True)),
    ]
    assert [each.bind for each in sidecar.ingress] == ["0.0.0.0", ""]


def test_reads_the_egress_proxy():
    spec = "outboundTrafficPolicy: {mode: ALLOW_ANY, egressProxy: {host: a.b, port: {number: 80}, subset: c}}"
    assert value(istio("Sidecar", spec)).outbound_policy == Destination("a.b", "c", 80)


def test_reads_connection_pools_of_one_listener_or_of_all():
    spec = """
    inboundConnectionPool: {http: {http2MaxRequests: 7, h2UpgradePolicy: DO_NOT_UPGRADE}}
    ingress: [{port: {number: 80, protocol: HTTP}, connectionPool: {tcp: {maxConnections: 3}}}]
    """
    found = value(istio("Sidecar", spec))
    assert found.inbound_pool == ConnectionPool(max_requests=7)
    assert found.ingress[0].pool == ConnectionPool(max_connections=3)
