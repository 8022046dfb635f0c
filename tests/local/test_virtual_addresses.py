from __future__ import annotations

import pytest
from msgspec import structs

from local.rig import CALLER, SERVICE, mesh, web
from weft.local.virtual_addresses import is_needed, virtual_addresses
from weft.mesh.mesh import Mesh
from weft.model.instance import Instance
from weft.model.names import ObjectKey
from weft.model.service import Protocol, Resolution, Service, ServicePort
from weft.model.workload import Workload
from weft.netns.balancing import VirtualAddress

SHOP = Service(
    host="web.shop.svc.cluster.local",
    name="web",
    namespace="shop",
    ports=(ServicePort(80, "http", target=8080), ServicePort(53, "dns", Protocol.UDP)),
    addresses=("10.96.1.1", "fd00:10:96::1"),
    selector=(("app", "web"),),
)


def model(*workloads: Workload, services: tuple[Service, ...] = ()) -> Mesh:
    made = Mesh()
    for number, value in enumerate((*workloads, *services)):
        made.apply(ObjectKey(type(value).__name__, "shop", str(number)), (value,))
    return made


def test_each_port_leads_to_the_ready_pods_of_its_family():
    made = model(services=(SHOP,))
    for number, ready in ((2, True), (3, True), (4, False)):
        addresses = (f"10.244.0.{number}", f"fd00:10:244::{number}")
        pod = Instance(f"web-{number}", "shop", addresses, labels=(("app", "web"),), ready=ready)
        made.apply(ObjectKey("Pod", "shop", pod.name), (pod,))
    assert list(virtual_addresses(made)) == [
        VirtualAddress("10.96.1.1", 80, (("10.244.0.2", 8080), ("10.244.0.3", 8080))),
        VirtualAddress("10.96.1.1", 53, (("10.244.0.2", 53), ("10.244.0.3", 53)), "udp"),
        VirtualAddress("fd00:10:96::1", 80, (("fd00:10:244::2", 8080), ("fd00:10:244::3", 8080))),
        VirtualAddress("fd00:10:96::1", 53, (("fd00:10:244::2", 53), ("fd00:10:244::3", 53)), "udp"),
    ]


@pytest.mark.parametrize(
    ("workload", "needed"),
    [
        (Workload("a", "shop", ("true",)), False),
        (Workload("a", "shop", ("true",), inject=False), True),
        (Workload("a", "shop", ("true",), exclude_outbound_ports=(5432,)), True),
        (Workload("a", "shop", ("true",), include_outbound_ranges="10.0.0.0/8"), True),
    ],
)
def test_rules_are_needed_only_where_something_passes_by_the_proxies(workload, needed):
    assert is_needed(model(workload)) is needed


@pytest.mark.parametrize(
    ("fields", "needed"),
    [
        ({}, False),
        ({"ports": (ServicePort(53, "dns", Protocol.UDP),)}, True),
        ({"resolution": Resolution.DNS}, True),
        ({"resolution": Resolution.NONE}, False),
        ({"export_to": (".",)}, True),
        ({"export_to": ("*",)}, False),
    ],
)
def test_rules_are_needed_where_a_services_own_address_may_be_called(fields, needed):
    plain = structs.replace(SHOP, ports=(ServicePort(80, "http", target=8080),))
    assert is_needed(model(services=(structs.replace(plain, **fields),))) is needed


@pytest.mark.root
@pytest.mark.usefixtures("run_base")
@pytest.mark.parametrize("version", [4, 6])
async def test_a_pod_without_a_proxy_reaches_a_service_and_arrives_at_its_proxy(version):
    outside = CALLER.replace("labels:", 'annotations: {sidecar.istio.io/inject: "false"}, labels:')
    async with mesh(SERVICE, web(replicas=2), outside) as rig:
        await rig.until_ready("caller-0", "web-0", "web-1")
        address = rig.address(version=version)
        seen = set()
        while len(seen) < 2:
            status, body = await rig.fetch("caller", address)
            assert status == 200 and body.split()[1] in ("127.0.0.6", "::6")
            seen.add(body.split()[2])


@pytest.mark.root
@pytest.mark.usefixtures("run_base")
async def test_an_excluded_port_reaches_its_service_past_the_callers_proxy():
    caller = f"{CALLER}  excludeOutboundPorts: [80]\n"
    async with mesh(SERVICE, web(), caller) as rig:
        await rig.until_ready("caller-0", "web-0")
        assert await rig.fetch("caller", rig.address()) == (200, "v1 127.0.0.6 web-0")
        await rig.engine.observer.scrape()
        assert not rig.engine.status().edges


HIDING = """
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: default, namespace: shop}
spec: {workloadSelector: {labels: {app: caller}}, egress: [{hosts: ["nowhere/*"]}]}
"""


@pytest.mark.root
@pytest.mark.usefixtures("run_base")
async def test_a_service_that_a_sidecar_hides_is_reached_as_an_unknown_destination():
    async with mesh(SERVICE, web(), CALLER, HIDING) as rig:
        await rig.until_ready("caller-0", "web-0")
        assert await rig.fetch("caller", rig.address()) == (200, "v1 127.0.0.6 web-0")
        await rig.engine.observer.scrape()
        assert not rig.engine.status().edges


BY_NAME = """
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: alias, namespace: shop}
spec:
  hosts: [web.example.com]
  addresses: [240.9.9.9]
  resolution: DNS
  ports: [{number: 90, name: tcp, protocol: TCP}]
  endpoints: [{address: web.shop.svc.cluster.local, ports: {tcp: 80}}]
"""


@pytest.mark.root
@pytest.mark.usefixtures("run_base")
async def test_a_proxy_resolves_the_names_of_endpoints_as_its_pod_does():
    async with mesh(SERVICE, web(), CALLER, BY_NAME) as rig:
        await rig.until_ready("caller-0", "web-0")
        assert await rig.fetch("caller", "240.9.9.9", 90) == (200, "v1 127.0.0.6 web-0")


TIMEOUT = """
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: web, namespace: shop}
spec: {hosts: [web], http: [{timeout: 2s, route: [{destination: {host: web}}]}]}
"""


@pytest.mark.root
@pytest.mark.usefixtures("run_base")
async def test_rules_are_found_out_anew_when_services_change_and_not_when_routes_do(monkeypatch):
    async with mesh(SERVICE, web(), CALLER) as rig:
        await rig.until_ready("caller-0", "web-0")
        await rig.engine.settled()
        asked: list[Mesh] = []
        monkeypatch.setattr("weft.local.virtual_addresses.is_needed", asked.append)
        pushes = rig.engine.control.pushes
        rig.write("route.yaml", TIMEOUT)
        await rig.until(lambda status: rig.engine.control.pushes > pushes)
        await rig.engine.settled()
        assert not asked
        rig.write("other.yaml", SERVICE.replace("web", "other"))
        await rig.until(lambda status: asked)
