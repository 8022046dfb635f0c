from __future__ import annotations

from model.builders import instance, put, service
from weft.local.detection import Detection
from weft.local.traffic import Scrape
from weft.mesh.mesh import Mesh
from weft.model.names import ObjectKey, Origin, labels_of
from weft.model.service import Protocol
from weft.model.workload import Workload

ORIGIN = Origin(ObjectKey("Workload", "shop", "web"), "", "web.yaml", 7)
WEB = Workload("web", "shop", ("true",), labels=labels_of({"app": "web"}), origin=ORIGIN)
INBOUND = ("0.0.0.0", 15006)


def database(protocol: Protocol = Protocol.UNDECLARED, **more):
    return service("db", port=3306, target=3306, protocol=protocol, **{"addresses": ("10.96.1.1", "fd00::1"), **more})


def late(mesh: Mesh, timeouts, detection: Detection | None = None, cuts=None) -> list[str]:
    scrape = Scrape({}, timeouts, cuts or {})
    return [str(problem) for problem in (detection or Detection()).problems("shop/web-0", WEB, scrape, mesh)]


def test_a_delayed_connection_names_the_callers_file_the_service_and_the_fix():
    mesh = Mesh()
    put(mesh, database())
    (said,) = late(mesh, {("10.96.1.1", 3306): 1, ("fd00:0::1", 3306): 2})
    assert said.startswith("web.yaml:7: Workload shop/web: warning: connections to db.shop:3306 were delayed")
    assert "`appProtocol`" in said


def test_a_headless_service_is_known_by_its_pods():
    mesh = Mesh()
    put(mesh, database(addresses=(), headless=True), instance("db-0", "db", address="10.244.0.9"))
    (said,) = late(mesh, {("10.244.0.9", 3306): 1})
    assert "to db.shop:3306 were delayed" in said


def test_a_shared_listener_has_only_a_port():
    mesh = Mesh()
    put(mesh, service("x", port=25, protocol=Protocol.UNDECLARED, addresses=("192.0.2.1",)))
    assert "connections to port 25 were delayed" in late(mesh, {("0.0.0.0", 25): 1})[0]


def test_nothing_is_late_once_the_protocol_is_declared_or_the_service_gone():
    mesh = Mesh()
    put(mesh, database(Protocol.MYSQL))
    assert late(mesh, {("10.96.1.1", 3306): 1, ("10.96.1.9", 3306): 1}) == []


def test_many_delayed_connections_are_one_problem():
    mesh = Mesh()
    put(mesh, database())
    assert late(mesh, {("10.96.1.1", 3306): 1}) == late(mesh, {("10.96.1.1", 3306): 2})


def test_inbound_counts_start_anew_when_the_ports_change():
    mesh, detection = Mesh(), Detection()
    put(mesh, instance("web-0", "web"), service("web", target=8080, protocol=Protocol.UNDECLARED))
    assert "(undeclared: 8080)" in late(mesh, {INBOUND: 2}, detection)[0]
    put(mesh, service("web", target=8080, protocol=Protocol.TCP))
    assert late(mesh, {INBOUND: 2}, detection) == []
    (said,) = late(mesh, {INBOUND: 3}, detection)
    assert "to an inbound port whose protocol is not declared were delayed" in said
    assert late(mesh, {}, detection) == []
    assert late(mesh, {INBOUND: 1}, detection) != []


def test_a_port_declared_with_several_protocols_is_reported_if_detection_inspects_it():
    mesh, selector = Mesh(), labels_of({"app": "web"})
    put(mesh, instance("web-0", "web"), service("web", target=8080, protocol=Protocol.HTTP))
    put(mesh, service("zulu", target=8080, protocol=Protocol.TCP, selector=selector))
    assert "(declared with several protocols: 8080)" in late(mesh, {INBOUND: 2})[0]
    put(mesh, service("aaa", target=8080, protocol=Protocol.TCP, selector=selector))
    assert "with several protocols" not in late(mesh, {INBOUND: 2})[0]


def test_a_connection_dropped_during_protocol_detection_is_reported_for_undeclared_ports():
    mesh = Mesh()
    put(mesh, database())
    (said,) = late(mesh, {}, cuts={("10.96.1.1", 3306): 1, ("0.0.0.0", 80): 9})
    assert "connections to db.shop:3306 were dropped" in said
    assert "`appProtocol`" in said
    put(mesh, database(Protocol.TCP))
    assert late(mesh, {}, cuts={("10.96.1.1", 3306): 1}) == []


def test_connections_that_exceed_the_detection_buffer_are_reported_until_the_ports_are_declared():
    mesh, detection = Mesh(), Detection()

    def said(unread):
        return [str(each) for each in detection.problems("shop/web-0", WEB, Scrape({}, {}, {}, unread), mesh)]

    put(mesh, database())
    assert said(0) == []
    (warning,) = said(3)
    assert "(db.shop.svc.cluster.local:3306) were dropped, as they sent 64 KiB" in warning
    assert said(3) == [warning]
    put(mesh, database(Protocol.TCP))
    assert said(3) == []
