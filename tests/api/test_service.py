import pytest

from api.reading import told, value
from weft.model.service import Protocol, Resolution, ServicePort, StaticEndpoint

HEAD = "apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: shop, labels: {app: web}}\n"


def service(spec):
    return value(HEAD + "spec: " + spec)


def test_reads_a_service():
    found = service(
        "{clusterIP: 10.0.0.1, clusterIPs: [10.0.0.1, 'fd00::1'], selector: {app: web}, type: LoadBalancer, "
        "publishNotReadyAddresses: true, sessionAffinity: None, externalTrafficPolicy: Local, "
        "ports: [{name: http, port: 80, targetPort: 8080, nodePort: 30080, protocol: TCP}, "
        "{name: x, port: 81, targetPort: named, appProtocol: grpc}]}"
    )
    assert found.host == "web.shop.svc.cluster.local"
    assert found.addresses == ("10.0.0.1", "fd00::1")
    assert found.selector == (("app", "web"),)
    assert found.publish_not_ready
    assert found.ports == (
        ServicePort(80, "http", Protocol.HTTP, 8080),
        ServicePort(81, "x", Protocol.GRPC, "named"),
    )
    assert found.labels == (("app", "web"),)


def test_a_service_without_an_address_gets_one_later():
    found = service("{ports: [{port: 80}]}")
    assert found.addresses == ()
    assert not found.headless
    assert found.selector is None


def test_a_headless_service_as_the_api_server_writes_it():
    written = "{clusterIP: None, clusterIPs: [None], selector: {app: web}, ports: [{name: http, port: 80}]}"
    assert told(HEAD + "spec: " + written) == []
    assert service(written).headless and service(written).addresses == ()


def test_a_headless_service():
    assert service("{clusterIP: None, ports: [{port: 80}]}").headless


def test_an_external_name_ignores_target_ports():
    found = service("{type: ExternalName, externalName: db.example.com, ports: [{port: 80, targetPort: 8080}]}")
    assert (found.ports[0].number, found.ports[0].target, found.sliced) == (80, 0, False)


def test_an_external_name_is_resolved_by_the_proxy():
    found = service("{type: ExternalName, externalName: db.example.com, ports: [{port: 80}]}")
    assert found.resolution is Resolution.DNS
    assert found.static_endpoints == (StaticEndpoint("db.example.com"),)


@pytest.mark.parametrize(
    ("port", "protocol"),
    [
        ("{port: 1, appProtocol: kubernetes.io/h2c}", "http2"),
        ("{port: 1, appProtocol: kubernetes.io/ws}", "http"),
        ("{port: 1, name: http-x, appProtocol: tcp}", "tcp"),
        ("{port: 1, name: http-x, protocol: UDP}", "udp"),
        ("{port: 1, appProtocol: MySQL}", "mysql"),
        ("{port: 1, appProtocol: HTTPS}", "https"),
    ],
)
def test_app_protocol_goes_before_the_name(port, protocol):
    assert service(f"{{ports: [{port}]}}").ports[0].protocol is Protocol(protocol)


def test_an_unknown_app_protocol_is_undeclared_and_gets_a_warning():
    assert told(HEAD + "spec: {ports: [{name: http-x, port: 5432, appProtocol: postgres}]}") == [
        "4 warning: the protocol `postgres` is not known; proxies detect it from the first bytes of each connection "
        "(if the server sends first, use tcp)"
    ]


@pytest.mark.parametrize(
    ("spec", "problems"),
    [
        ("{}", ["4 `ports` is required"]),
        ("{ports: [{port: 80}, {port: 81}]}", ["4 a port of a service with several ports needs a `name`"] * 2),
        ("{ports: [{name: a, port: 80}, {name: a, port: 81}]}", ["4 two ports are named `a`"]),
        ("{ports: [{name: a, port: 80}, {name: b, port: 80}]}", ["4 port 80 is listed twice"]),
        ("{ports: [{port: 0}]}", ["4 `port` must be between 1 and 65535, not 0"]),
        ("{ports: [{prot: 80, port: 80}]}", ["4 unknown field `prot` (did you mean `port`?)"]),
        (
            "{ports: [{port: 80, targetPort: '8080'}]}",
            ['4 `targetPort` "8080" is text (write the number without quotes: 8080)'],
        ),
        (
            "{clusterIP: x, ports: [{port: 80}]}",
            [
                "4 `x` is not an IP address (write an IP address, write None for a headless service, or leave the field out)"
            ],
        ),
        ("{type: ExternalName}", ["4 `externalName` is required"]),
        ("{type: External, ports: [{port: 80}]}", ["4 `type` cannot be `External` (did you mean `ExternalName`?)"]),
    ],
)
def test_reports_what_is_wrong(spec, problems):
    assert list(told(HEAD + "spec: " + spec)) == problems


def test_udp_and_tcp_may_share_a_number():
    assert len(service("{ports: [{name: dns, port: 53, protocol: UDP}, {name: dns-tcp, port: 53}]}").ports) == 2


def test_export_to_is_an_annotation():
    head = HEAD.replace("labels: {app: web}", "annotations: {networking.istio.io/exportTo: '., sales'}")
    assert value(head + "spec: {ports: [{port: 80}]}").export_to == (".", "sales")
