from __future__ import annotations

from pathlib import Path

import pytest

from local.test_sidecar import BRIDGE
from weft.local.addresses import Addresses
from weft.local.gateway import as_gateway, publications
from weft.local.pod import PodPlan
from weft.local.sidecar import proxy_plan
from weft.model.names import ObjectKey, Origin, labels_of
from weft.model.proxy import PROXY_UID
from weft.model.workload import PublishedPort, Workload
from weft.netns.namespace import NetworkNamespace

KEY = ObjectKey("Workload", "shop", "edge")
WORKLOAD = Workload(
    "edge",
    "shop",
    (),
    labels_of({"app": "edge"}),
    gateway=True,
    publish=(PublishedPort(443, 8443, line=9),),
    origin=Origin(KEY, file="edge.yaml", line=2),
)


@pytest.mark.root
def test_a_gateways_proxy_is_a_router_without_interception_and_with_a_directory_for_its_sockets(tmp_path):
    plan = PodPlan(name="edge-0", workload=WORKLOAD, addresses=Addresses().pods.take("shop/edge-0"), uid=10000)
    sidecar = proxy_plan(
        plan,
        NetworkNamespace("weft-x.shop.edge-0"),
        Path("/run/weft/x/pods/shop/edge-0"),
        bridge=BRIDGE,
        binary=Path("/envoy"),
        xds_socket=Path("/run/weft/x/xds.sock"),
        sds_socket=Path("/run/weft/x/sds/10000/sds.sock"),
        domain="mesh.test",
    )
    made = as_gateway(sidecar, tmp_path / "10000")
    assert made.bootstrap.node.id == f"router~{plan.addresses.texts[0]}~edge-0.shop~shop.svc.mesh.test"
    assert made.interception is None
    assert made.started_in == tmp_path / "10000" and str(tmp_path / "10000") in made.sockets
    assert ((tmp_path / "10000").stat().st_uid, (tmp_path / "10000").stat().st_mode & 0o777) == (PROXY_UID, 0o700)


class Pod:
    def __init__(self, uid: int, workload: Workload, *, ready: bool = True) -> None:
        self.plan = PodPlan(name=f"edge-{uid}", workload=workload, addresses=Addresses().pods.take("x"), uid=uid)
        self.ready = ready

    def instance(self):
        from weft.model.instance import pod_of

        return pod_of(self.plan.workload, self.plan.name, ("10.0.0.1",))


def test_a_published_port_leads_to_the_pods_that_are_ready_and_have_it():
    before = Workload("edge", "shop", (), gateway=True, publish=(PublishedPort(80, 8080),))
    pods = [Pod(2, WORKLOAD), Pod(1, WORKLOAD), Pod(3, WORKLOAD, ready=False), Pod(4, before)]
    (found,) = publications(KEY, (WORKLOAD,), pods)
    assert found.sockets == ("1/published-443.sock", "2/published-443.sock")
    assert (found.address, found.host_port) == ("127.0.0.1", 8443)
    assert str(found.where).startswith("edge.yaml:9")


def test_a_gateway_without_published_ports_has_no_publication():
    assert list(publications(KEY, (Workload("edge", "shop", (), gateway=True),), [])) == []
    assert list(publications(KEY, (), [])) == []
