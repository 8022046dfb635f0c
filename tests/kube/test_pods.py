import msgspec
import pytest

from kube.manifests import pod
from weft.kube.objects import ContainerPort, PodObject
from weft.kube.pods import PodIndex, PodRecord, instance_of, is_over, kept_labels, record_of
from weft.model.group import Group, ProxyKind
from weft.model.names import labels_of


def read(*arguments, uid="u1", owner=None, deleted=None, init=None, **more):
    manifest = pod(*arguments, **more)
    manifest["metadata"] |= {"uid": uid, **({"deletionTimestamp": deleted} if deleted else {})}
    if owner:
        kind, name = owner
        manifest["metadata"]["ownerReferences"] = [{"kind": kind, "name": name, "controller": True}]
    if init:
        manifest["spec"]["initContainers"] = init
    return msgspec.convert(manifest, PodObject)


def seen(*arguments, locality="", **more):
    found = read(*arguments, **more)
    return instance_of(found, record_of(found, locality))


def test_a_pod_becomes_an_instance():
    found = seen("orders-0", "shop", "10.0.0.1", "fd00::1", ports=[("web", 8080)], account="orders", locality="eu/eu-1")
    assert found.labels == labels_of({"app": "orders"})
    assert (found.addresses, found.service_account, found.ports) == (
        ("10.0.0.1", "fd00::1"),
        "orders",
        (("web", 8080),),
    )
    assert found.ready and found.meshed and found.by_slice and found.locality == "eu/eu-1"


@pytest.mark.parametrize(
    ("more", "meshed"),
    [
        ({"proxy": True}, True),
        ({"proxy": False}, False),
        ({"proxy": False, "annotations": {"sidecar.istio.io/status": "{}"}}, True),
        ({"proxy": False, "init": [{"name": "istio-proxy", "restartPolicy": "Always"}]}, True),
        ({"proxy": True, "hostNetwork": True}, False),
    ],
)
def test_a_pod_is_meshed_if_it_has_a_proxy_that_can_intercept(more, meshed):
    assert seen("orders-0", "shop", "10.0.0.1", **more).meshed is meshed


@pytest.mark.parametrize("made", [ProxyKind.GATEWAY, ProxyKind.SIDECAR])
@pytest.mark.parametrize(
    "annotations",
    [
        {"sidecar.istio.io/status": "{}", "inject.istio.io/templates": "gateway"},
        {"sidecar.istio.io/status": "{}", "inject.istio.io/templates": "sidecar"},
        {},
    ],
)
def test_a_pod_is_a_gateway_if_its_proxy_was_started_as_one_whatever_its_labels_are_later(annotations, made):
    more = {"annotations": annotations, "labels": {"istio.io/kind": "router"}, "gateway": made is ProxyKind.GATEWAY}
    found = read("edge-0", "shop", "10.0.0.1", **more)
    record = record_of(found)
    assert record.group.kind is made
    assert record.proxied
    assert record.meshed is (made is ProxyKind.SIDECAR)
    assert instance_of(found, record).gateway is (made is ProxyKind.GATEWAY)


@pytest.mark.parametrize(
    "container",
    [
        {"name": "app", "args": ['{"node": {"id": "router~1"}}']},
        {
            "name": "istio-proxy",
            "args": ["router~1", '{"node": 1, "id": "router~1"}', '{"node": {"id": "a-router~1"}}'],
        },
        {"name": "istio-proxy", "args": None},
    ],
)
def test_no_other_field_makes_a_pod_a_gateway(container):
    found = read("edge-0", "shop", "10.0.0.1", containers=[container])
    assert record_of(found).group.kind is ProxyKind.SIDECAR


@pytest.mark.parametrize(
    ("more", "ready"), [({}, True), ({"ready": False}, False), ({"deleted": "2026-01-01T00:00:00Z"}, False)]
)
def test_a_pod_that_is_being_deleted_is_not_ready_whatever_its_probe_result(more, ready):
    assert seen("orders-0", "shop", "10.0.0.1", **more).ready is ready


@pytest.mark.parametrize(
    ("annotations", "included", "excluded"),
    [
        ({}, None, ()),
        ({"includeInboundPorts": "*"}, None, ()),
        ({"includeInboundPorts": ""}, (), ()),
        ({"includeInboundPorts": "80, 81"}, (80, 81), ()),
        ({"excludeInboundPorts": "80,nonsense,99999"}, None, (80,)),
    ],
)
def test_annotations_choose_the_intercepted_ports(annotations, included, excluded):
    written = {f"traffic.sidecar.istio.io/{name}": value for name, value in annotations.items()}
    found = seen("orders-0", "shop", "10.0.0.1", annotations=written)
    assert (found.included_ports, found.excluded_ports) == (included, excluded)


def test_named_ports_are_those_of_containers_that_keep_running():
    init = [
        {"name": "once", "ports": [{"name": "gone", "containerPort": 1}]},
        {"name": "beside", "restartPolicy": "Always", "ports": [{"name": "stays", "containerPort": 2}]},
    ]
    found = read("orders-0", "shop", "10.0.0.1", init=init)
    found.spec.containers[0].ports = [ContainerPort(53, "dns", "UDP"), ContainerPort(80, "web")]
    assert instance_of(found, record_of(found)).ports == (("stays", 2), ("web", 80))


@pytest.mark.parametrize(
    ("owner", "workload"),
    [
        (None, "orders-0"),
        (("ReplicaSet", "orders-abc12"), "orders"),
        (("StatefulSet", "orders"), "orders"),
        (("Job", "nightly-28912345"), "nightly"),
        (("Job", "migrate"), "migrate"),
    ],
)
def test_the_workload_of_a_pod_is_the_object_that_a_user_wrote(owner, workload):
    found = seen("orders-0", "shop", "10.0.0.1", owner=owner, labels={"pod-template-hash": "abc12"})
    assert found.workload == workload


def test_equal_labels_share_one_value():
    assert kept_labels({"a": "x" * 30, "b": "y"}) is kept_labels({"b": "y", "a": "x" * 30})
    first, second = record_of(read("orders-0", "shop")), record_of(read("orders-1", "shop", uid="u2"))
    assert first.group is second.group


def test_a_pod_without_an_address_or_a_node_is_indexed():
    found = record_of(read("orders-0", "shop"))
    assert (found.addresses, found.node, found.uid) == ((), "", "u1")


@pytest.mark.parametrize(
    ("phase", "over"), [("Pending", False), ("Running", False), ("Succeeded", True), ("Failed", True)]
)
def test_a_pod_that_has_ended_is_recognized(phase, over):
    assert is_over(read("orders-0", "shop", phase=phase)) is over


# The index


def record(name, uid, node="", **more):
    return PodRecord("shop", name, uid, Group(ProxyKind.SIDECAR, "shop"), node, **more)


def test_a_pod_is_found_by_name_uid_and_node():
    pods, one, two = PodIndex(), record("a", "u1", "n1"), record("b", "u2", "n1")
    pods.put(one)
    pods.put(two)
    assert pods.get("shop", "a") is one and pods.by_uid("u2") is two and set(pods.on_node("n1")) == {one, two}
    assert len(pods) == 2 and set(pods) == {one, two}
    assert pods.get("shop", "c") is None and pods.by_uid("") is None and pods.on_node("n2") == ()


def test_callbacks_get_the_record_before_and_after():
    pods, told = PodIndex(), []
    pods.on_change.append(lambda before, after: told.append((before, after)))
    waiting, placed = record("a", "u1"), record("a", "u1", "n1")
    pods.put(waiting)
    pods.put(waiting)
    pods.put(placed)
    pods.discard("shop", "a")
    pods.discard("shop", "a")
    assert told == [(None, waiting), (waiting, placed), (placed, None)]
    assert pods.on_node("n1") == () and pods.by_uid("u1") is None and not len(pods)


def test_a_new_pod_of_the_same_name_replaces_the_old_record():
    pods = PodIndex()
    pods.put(record("a", "u1", "n1"))
    pods.put(record("a", "u2", "n2"))
    assert pods.by_uid("u1") is None and pods.on_node("n1") == () and pods.by_uid("u2").node == "n2"
