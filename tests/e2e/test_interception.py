"""Which traffic reaches the proxy and which does not, without an effect on application or host."""

from __future__ import annotations

import asyncio
import ipaddress
import subprocess
import sys
from pathlib import Path

import dns.message
import dns.rdatatype
import dns.rrset
import pytest
import pytest_asyncio

import host
from e2e.mesh import Mesh, running_mesh
from e2e.objects import http_service, istio, service, text, workload
from fields import proves

pytestmark = pytest.mark.asyncio(loop_scope="module")


def files(control: Path, version: str = "v1") -> dict[str, str]:
    return {
        "client.yaml": text(workload("client", control=control)),
        "web.yaml": text(
            workload("web", control=control, serve="http=8080 echo=9000", version=version),
            service(
                "web",
                {"name": "http", "port": 80, "targetPort": 8080},
                {"name": "http-alt", "port": 8080},
                {"name": "tcp", "port": 9000},
            ),
        ),
        "plain.yaml": text(
            workload(
                "plain",
                control=control,
                serve="http=8080 echo=9000",
                annotations={"sidecar.istio.io/inject": "false"},
            ),
            http_service("plain"),
        ),
        "excluding.yaml": text(
            workload("excluding", control=control, serve="http=8080 http=8082", excludeOutboundPorts=[8080],
                     excludeInboundPorts=[8082]),
            http_service("excluding"),
            workload("ranged", control=control, excludeOutboundRanges=["0.0.0.0/1"]),
        ),
        "locked.yaml": text(
            workload("locked", control=control, namespace="locked"),
            istio("Sidecar", "default", {"outboundTrafficPolicy": {"mode": "REGISTRY_ONLY"}}, namespace="locked"),
        ),
    }  # fmt: skip


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def host_before():
    return host.network()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def mesh(host_before):
    async with running_mesh(files) as mesh:
        yield mesh


def in_pod(mesh: Mesh, workload: str, uid: int, program: str) -> str:
    """Run Python in a pod's network as any user, from outside of it."""
    command = ["nsenter", "-t", str(mesh.pod(workload).pid), "-n", sys.executable, "-c"]
    # Another user may not read this interpreter's modules, so they are imported before the user changes.
    change = (
        f"import os, encodings.idna, urllib.request as request\nos.setgroups([]); os.setgid({uid}); os.setuid({uid})\n"
    )
    done = subprocess.run([*command, change + program], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


async def outbound_connections(mesh: Mesh, workload: str) -> int:
    """Connections of the application that its proxy accepted, on whichever listener 15001 handed them to."""
    found = await mesh.stats(mesh.pod(workload).name, r"^listener\..*\.downstream_cx_total$")
    others = ("admin", "worker_", "_15006.", "_15021.", "_15090.")
    return sum(value for name, value in found.items() if not any(other in name for other in others))


async def inbound_connections(mesh: Mesh, workload: str) -> int:
    return await mesh.stat(workload, r"^listener\..*15006\.downstream_cx_total$")


async def test_the_application_sees_its_own_proxy_as_the_caller(mesh):
    answer = await mesh.get("client", "http://web/")
    assert (answer["status"], answer["body"]["peer"]) == (200, "127.0.0.6")


async def test_the_application_sees_its_own_proxy_as_the_caller_over_ipv6(mesh):
    address = next(address for address in mesh.pod("web").addresses if ":" in address)
    answer = await mesh.get("client", f"http://[{address}]:8080/")
    assert (answer["status"], answer["body"]["peer"]) == (200, "::6")


async def test_a_tcp_server_sees_its_own_proxy_as_the_caller(mesh):
    answer = await mesh.tell("client", "tcp", host="web", port=9000, send="hello", half_close=True)
    assert answer["received"] == "hello<end of file seen>"
    assert (await mesh.tell("web", "tcp_seen"))["peers"][-1] == "127.0.0.6"


async def test_one_request_passes_both_proxies_once(mesh):
    before = await outbound_connections(mesh, "client"), await inbound_connections(mesh, "web")
    await mesh.requests("client", "http://web/once", 5, parallel=1)
    assert await outbound_connections(mesh, "client") - before[0] == 1
    # The proxies may reuse an existing connection between them; it never loops.
    assert await inbound_connections(mesh, "web") - before[1] in (0, 1)
    assert await mesh.received("web", "/once") == 5


async def test_a_call_to_a_pod_address_arrives_there_and_nowhere_else(mesh):
    address = mesh.pod("web").addresses[0]
    before = await outbound_connections(mesh, "client")
    answer = await mesh.get("client", f"http://{address}:8080/by-address")
    assert (answer["status"], answer["body"]["pod"], answer["body"]["peer"]) == (200, mesh.pod("web").name, "127.0.0.6")
    assert await outbound_connections(mesh, "client") == before + 1


async def test_the_proxys_own_user_is_not_intercepted(mesh):
    address = mesh.pod("plain").addresses[0]
    program = f"print(request.urlopen('http://{address}:8080/direct', timeout=10).status)"
    before = await outbound_connections(mesh, "client")
    assert in_pod(mesh, "client", 1337, program) == "200"
    assert await outbound_connections(mesh, "client") == before
    assert in_pod(mesh, "client", 4321, program) == "200"
    assert await outbound_connections(mesh, "client") == before + 1


async def test_a_pod_reaches_itself_through_its_own_service(mesh):
    before = await inbound_connections(mesh, "web")
    answer = await mesh.get("web", "http://web/self")
    assert (answer["status"], answer["body"]["pod"], answer["body"]["peer"]) == (200, mesh.pod("web").name, "127.0.0.6")
    assert await inbound_connections(mesh, "web") == before + 1


async def test_loopback_stays_the_applications_own(mesh):
    before = await outbound_connections(mesh, "web"), await inbound_connections(mesh, "web")
    for address in ("127.0.0.1", "[::1]", mesh.pod("web").addresses[0]):
        answer = await mesh.get("web", f"http://{address}:8080/")
        assert answer["status"] == 200
        assert answer["body"]["peer"] not in ("127.0.0.6", "::6")
    assert (await outbound_connections(mesh, "web"), await inbound_connections(mesh, "web")) == before


async def test_an_undeclared_destination_is_passed_through(mesh):
    address = mesh.pod("plain").addresses[0]
    before = await mesh.stat("client", r"^cluster\.PassthroughCluster\.upstream_cx_total$")
    answer = await mesh.tell("client", "tcp", host=address, port=9000, send="hello", half_close=True)
    assert answer["received"] == "hello<end of file seen>"
    assert await mesh.stat("client", r"^cluster\.PassthroughCluster\.upstream_cx_total$") == before + 1
    # Without a proxy on the other side, the server sees the pod itself.
    assert (await mesh.tell("plain", "tcp_seen"))["peers"][-1] == mesh.pod("client").addresses[0]


async def test_an_unknown_host_on_a_known_http_port_is_passed_through(mesh):
    """Port 8080 has a listener with routes by host; a host without a route is reached at the called address."""
    address = mesh.pod("plain").addresses[0]
    before = await mesh.stat("client", r"^cluster\.PassthroughCluster\.upstream_rq_total$")
    answer = await mesh.get("client", f"http://{address}:8080/", headers={"host": "nobody.example"})
    assert (answer["status"], answer["body"]["host"]) == (200, "nobody.example")
    assert answer["body"]["pod"] == mesh.pod("plain").name
    assert await mesh.stat("client", r"^cluster\.PassthroughCluster\.upstream_rq_total$") == before + 1


@proves(
    "Sidecar",
    "spec.outboundTrafficPolicy.mode",
)
async def test_with_mode_registry_only_unknown_hosts_get_502_over_http_and_a_closed_tcp_connection(mesh):
    assert (await mesh.get("locked", "http://web.shop/"))["status"] == 200
    (virtual,) = (await mesh.tell("locked", "resolve", name="web.shop"))["v4"]
    assert (await mesh.get("locked", f"http://{virtual}/", headers={"host": "nobody.example"}))["status"] == 502
    answer = await mesh.tell("locked", "tcp", host=mesh.pod("plain").addresses[0], port=9000, send="hello")
    assert answer["received"] == ""
    assert mesh.pod("locked").addresses[0] not in (await mesh.tell("plain", "tcp_seen"))["peers"]


async def test_excluded_outbound_ports_go_directly(mesh):
    address = mesh.pod("plain").addresses[0]
    before = await outbound_connections(mesh, "excluding")
    assert (await mesh.get("excluding", f"http://{address}:8080/"))["status"] == 200
    assert await outbound_connections(mesh, "excluding") == before
    answer = await mesh.tell("excluding", "tcp", host=address, port=9000, send="x", half_close=True)
    assert answer["received"] == "x<end of file seen>"
    assert await outbound_connections(mesh, "excluding") == before + 1


async def test_excluded_inbound_ports_are_reached_directly(mesh):
    pod = mesh.pod("excluding")
    assert (await mesh.get("client", f"http://{pod.addresses[0]}:8082/"))["body"]["peer"] == mesh.pod(
        "client"
    ).addresses[0]
    assert (await mesh.get("client", f"http://{pod.addresses[0]}:8080/"))["body"]["peer"] == "127.0.0.6"


async def test_excluded_outbound_ranges_go_directly(mesh):
    address = next(a for a in mesh.pod("plain").addresses if ":" not in a)
    assert ipaddress.ip_address(address) in ipaddress.ip_network("0.0.0.0/1")
    before = await outbound_connections(mesh, "ranged")
    assert (await mesh.get("ranged", f"http://{address}:8080/"))["status"] == 200
    assert await outbound_connections(mesh, "ranged") == before


async def test_a_workload_without_injection_has_no_proxy(mesh):
    answer = await mesh.get("plain", "http://127.0.0.1:15000/ready", timeout=5)
    assert answer["status"] == 0
    rules = subprocess.run(
        ["nsenter", "-t", str(mesh.pod("plain").pid), "-n", "iptables-save", "-t", "nat"],
        capture_output=True,
        text=True,
    )
    assert "ISTIO" not in rules.stdout
    assert (await mesh.get("client", "http://plain/"))["body"]["peer"] == mesh.pod("client").addresses[0]


async def test_each_application_has_its_own_user_and_it_is_not_the_proxys(mesh):
    users = [(await mesh.tell(name, "who"))["uid"] for name in ("client", "web")]
    assert not {0, 1337} & set(users)


@pytest.mark.parametrize("name", ["web", "web.shop", "web.shop.svc", "web.shop.svc.cluster.local"])
async def test_a_service_resolves_by_each_of_its_names(mesh, name):
    found = await mesh.tell("client", "resolve", name=name)
    same = await mesh.tell("client", "resolve", name="web.shop.svc.cluster.local.")
    assert found == same
    assert len(found["v4"]) == len(found["v6"]) == 1
    assert (await mesh.get("client", f"http://{name}/"))["status"] == 200


async def test_short_names_belong_to_the_callers_own_namespace(mesh):
    assert (await mesh.tell("locked", "resolve", name="web"))["v4"] == []
    assert (await mesh.tell("locked", "resolve", name="web.shop"))["v4"] != []


async def test_a_service_that_does_not_exist_does_not_resolve(mesh):
    assert (await mesh.tell("client", "resolve", name="nothing.shop.svc.cluster.local"))["v4"] == []


class Resolver(asyncio.DatagramProtocol):
    """A name server outside of the mesh that returns one address for every A query."""

    def connection_made(self, transport):
        self.transport, self.asked = transport, []

    def datagram_received(self, data, sender):
        query = dns.message.from_wire(data)
        question = query.question[0]
        self.asked.append(question.name.to_text())
        answer = dns.message.make_response(query)
        if question.rdtype == dns.rdatatype.A:
            answer.answer.append(dns.rrset.from_text(question.name, 60, "IN", "A", "192.0.2.7"))
        self.transport.sendto(answer.to_wire(), sender)


async def test_names_outside_of_the_mesh_are_resolved_by_the_resolvers_of_the_machine(mesh, monkeypatch):
    loop = asyncio.get_running_loop()
    transport, resolver = await loop.create_datagram_endpoint(Resolver, local_addr=("127.0.0.1", 0))
    monkeypatch.setattr(mesh.engine._dns.for_pods, "_upstreams", lambda: [transport.get_extra_info("sockname")[:2]])
    assert (await mesh.tell("client", "resolve", name="www.example.com"))["v4"] == ["192.0.2.7"]
    assert "www.example.com." in resolver.asked
    # Names of the mesh are never sent to an outside resolver.
    await mesh.tell("client", "resolve", name="nothing.shop.svc.cluster.local")
    assert not [name for name in resolver.asked if name.endswith("cluster.local.")]
    transport.close()


async def test_localhost_is_the_pod_itself(mesh):
    assert "127.0.0.1" in (await mesh.tell("client", "resolve", name="localhost"))["v4"]


async def test_the_host_does_not_change(mesh, host_before):
    assert host.network() == host_before


async def test_meshes_run_side_by_side_with_the_same_addresses(mesh):
    def few(control: Path) -> dict[str, str]:
        return {name: content for name, content in files(control, "v2").items() if name in ("client.yaml", "web.yaml")}

    def one_more(control: Path) -> dict[str, str]:
        return {name: content for name, content in files(control, "v3").items() if name in ("client.yaml", "web.yaml")}

    async with running_mesh(few) as second, running_mesh(one_more) as third:
        assert second.pod("web").addresses == third.pod("web").addresses
        answers = await asyncio.gather(*(each.get("client", "http://web/") for each in (mesh, second, third)))
        assert [answer["body"]["version"] for answer in answers] == ["v1", "v2", "v3"]
    assert (await mesh.get("client", "http://web/"))["body"]["version"] == "v1"
