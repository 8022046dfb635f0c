from model.builders import group, instance, put, service
from weft.mesh.mesh import Mesh
from weft.model.names import labels_of
from weft.model.service import Protocol, ServicePort
from weft.model.sidecar import IngressListener, Sidecar


def test_inbound_ports_are_the_target_ports_of_the_services_that_select_the_group():
    mesh = Mesh()
    put(mesh, service("orders"), service("cart"), instance("orders-0", "orders"))
    assert [(port.number, port.protocol) for port in mesh.inbound_ports(group("orders"))] == [(8080, Protocol.HTTP)]


def test_the_workloads_protocol_is_used_where_no_service_declares_one():
    mesh = Mesh()
    put(
        mesh,
        service("orders", protocol=Protocol.UNDECLARED),
        instance("orders-0", "orders", protocols=((8080, Protocol.HTTP), (3306, Protocol.MYSQL))),
    )
    ports = [(port.number, port.protocol) for port in mesh.inbound_ports(group("orders"))]
    assert ports == [(3306, Protocol.MYSQL), (8080, Protocol.HTTP)]


def test_a_sidecars_ingress_replaces_the_ports_of_services():
    mesh = Mesh()
    ingress = IngressListener(ServicePort(9080, "http", Protocol.HTTP), "127.0.0.1:8080")
    put(mesh, service("orders"), Sidecar("orders", "shop", ingress=(ingress,)))
    assert [(p.number, p.default_endpoint) for p in mesh.inbound_ports(group("orders"))] == [(9080, "127.0.0.1:8080")]


def test_pods_of_two_releases_have_the_inbound_ports_of_both_with_the_first_services_protocol():
    mesh = Mesh()
    put(
        mesh,
        service("orders", target="web"),
        service("zulu", target="web", protocol=Protocol.TCP, selector=labels_of({"app": "orders"})),
        instance("orders-0", "orders", ports=(("web", 8080),)),
        instance("orders-1", "orders", ports=(("web", 9090),)),
    )
    found = mesh.inbound_ports(group("orders"))
    assert [(each.number, each.protocol) for each in found] == [(8080, Protocol.HTTP), (9090, Protocol.HTTP)]
    assert {each.others for each in found} == {(Protocol.TCP,)}
    assert [[each.name for each in port.services] for port in found] == [["orders", "zulu"]] * 2


def test_the_workloads_protocol_is_not_used_if_any_service_declares_one():
    mesh = Mesh()
    put(
        mesh,
        service("aaa", protocol=Protocol.UNDECLARED, selector=labels_of({"app": "orders"})),
        service("orders"),
        instance("orders-0", "orders", protocols=((8080, Protocol.MYSQL),)),
    )
    (port,) = mesh.inbound_ports(group("orders"))
    assert (port.protocol, port.others) == (Protocol.UNDECLARED, (Protocol.HTTP,))


def test_the_protocols_of_all_services_are_kept_without_duplicates_the_first_services_first():
    mesh, orders = Mesh(), labels_of({"app": "orders"})
    put(
        mesh,
        *(
            service(name, protocol=protocol, selector=orders)
            for name, protocol in zip(
                "dcba", (Protocol.HTTP, Protocol.TCP, Protocol.UNDECLARED, Protocol.TCP), strict=True
            )
        ),
        instance("orders-0", "orders", protocols=((8080, Protocol.MYSQL),)),
    )
    (port,) = mesh.inbound_ports(group("orders"))
    assert (port.protocol, port.others) == (Protocol.TCP, (Protocol.UNDECLARED, Protocol.HTTP))
    assert [each.name for each in port.services] == ["a", "b", "c", "d"]


def test_udp_ports_are_not_inbound_ports():
    mesh = Mesh()
    put(mesh, service("orders", protocol=Protocol.UDP), instance("orders-0", "orders"))
    assert mesh.inbound_ports(group("orders")) == ()


def test_a_gateways_published_ports_are_those_of_all_its_pods():
    mesh = Mesh()
    put(mesh, instance("edge-0", "edge", published=(443, 80)))
    assert mesh.published(group("edge")) == (80, 443)
    assert mesh.published(group("other")) == ()
