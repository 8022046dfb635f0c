import pytest

from model.builders import instance
from weft.model.instance import Instance, pod_of
from weft.model.names import ObjectKey, Origin, labels_of
from weft.model.service import Protocol, ServicePort
from weft.model.workload import Workload, WorkloadPort


@pytest.mark.parametrize(
    ("port", "number"),
    [
        (ServicePort(80, "web", target=8080), 8080),
        (ServicePort(80, "web", target="http"), 9000),
        (ServicePort(80, "web", target="absent"), None),
        (ServicePort(80, "http"), 9000),
        (ServicePort(80, "web"), 80),
    ],
)
def test_finds_the_port_that_serves_a_service_port(port, number):
    assert instance("pod", "orders", ports=(("http", 9000),)).port_for(port) == number


def test_a_workload_entrys_ports_override_the_target_port():
    origin = Origin(ObjectKey("WorkloadEntry", "shop", "machine"))
    machine = instance("machine", "orders", ports=(("http", 18080),), origin=origin)
    assert machine.port_for(ServicePort(80, "http", target=8080)) == 18080
    assert machine.port_for(ServicePort(80, "web", target=8080)) == 8080


@pytest.mark.parametrize(
    ("more", "intercepted"),
    [
        ({}, [80, 8080]),
        ({"excluded_ports": (8080,)}, [80]),
        ({"included_ports": (8080,)}, [8080]),
        ({"included_ports": ()}, []),
        ({"included_ports": (80, 8080), "excluded_ports": (80,)}, [8080]),
        ({"meshed": False}, []),
    ],
)
def test_intercepts_follows_included_and_excluded_ports(more, intercepted):
    pod = instance("pod", "orders", **{"meshed": True, **more})
    assert [port for port in (80, 8080) if pod.intercepts(port)] == intercepted


def test_a_pods_instance_has_the_fields_of_its_workload():
    workload = Workload(
        "orders-v1",
        "shop",
        ("run",),
        labels_of({"app": "orders"}),
        ports=(WorkloadPort(8080, "http", Protocol.HTTP), WorkloadPort(9000)),
        include_inbound_ports="8080,9000",
        exclude_inbound_ports=(9000,),
    )
    pod = pod_of(workload, "orders-v1-0", ("10.244.0.7",), ready=False)
    assert (pod.name, pod.addresses, pod.workload, pod.ready) == ("orders-v1-0", ("10.244.0.7",), "orders-v1", False)
    assert pod.port_for(ServicePort(80, "web", target="http")) == 8080
    assert pod.protocols == ((8080, Protocol.HTTP), (9000, Protocol.UNDECLARED))
    assert pod.intercepts(8080) and not pod.intercepts(9000)


@pytest.mark.parametrize(
    ("meshed", "label", "speaks"),
    [
        (True, "", True),
        (True, "istio", True),
        (True, "disabled", False),
        (False, "", False),
        (False, "istio", True),
        (False, "disabled", False),
    ],
)
def test_a_label_decides_whether_an_instance_accepts_the_meshs_tls(meshed, label, speaks):
    labels = labels_of({"security.istio.io/tlsMode": label} if label else {})
    assert Instance("a", "shop", (), labels, meshed=meshed).speaks_tls(80) is speaks


def test_a_port_that_is_not_intercepted_accepts_no_tls():
    pod = Instance(
        "a", "shop", (), labels_of({"security.istio.io/tlsMode": "istio"}), meshed=True, excluded_ports=(80,)
    )
    assert not pod.speaks_tls(80) and pod.speaks_tls(81)
