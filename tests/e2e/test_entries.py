"""Hosts of ServiceEntries with each kind of resolution, listeners of a Sidecar, and the visibility of hosts.

The name server for outside names belongs to this test.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter

import dns.message
import dns.rdatatype
import dns.rrset
import pytest
import pytest_asyncio

from authority import Authority
from e2e.looking import weft
from e2e.objects import http_service, istio, service, text, to, virtual_service, workload
from eventually import eventually
from fields import proves

pytestmark = pytest.mark.asyncio(loop_scope="module")

HTTP = {"number": 8080, "name": "http", "protocol": "HTTP"}
TCP = {"number": 9000, "name": "tcp", "protocol": "TCP"}
HIDDEN = ("one", "two")


def files(control):
    outside = {"sidecar.istio.io/inject": "false"}
    return {
        "clients.yaml": text(workload("client", control=control), workload("peer", control=control, namespace="field")),
        "outside.yaml": text(
            workload("one", control=control, serve="http=8080 echo=9000 namer=9443", annotations=outside),
            workload("two", control=control, serve="http=8080 echo=9000 namer=9443", annotations=outside),
        ),
        "inner.yaml": text(
            workload("inner", control=control, serve="http=8080", environment={"SOCKET": f"{control}/inner-http"}),
            service("inner", {"name": "http", "port": 80, "targetPort": 9090}),
        ),
        "shared.yaml": text(workload("shared", control=control, serve="http=8080"), http_service("shared")),
    }


class Names(asyncio.DatagramProtocol):
    """Resolves these names and no others."""

    def __init__(self, known):
        self.known = known

    def connection_made(self, transport):
        self.transport = transport

    def datagram_received(self, data, sender):
        query = dns.message.from_wire(data)
        question = query.question[0]
        answer = dns.message.make_response(query)
        addresses = self.known.get(question.name.to_text().rstrip("."), ())
        if question.rdtype == dns.rdatatype.A and addresses:
            answer.answer.append(dns.rrset.from_text_list(question.name, 60, "IN", "A", addresses))
        self.transport.sendto(answer.to_wire(), sender)


@pytest_asyncio.fixture(scope="module", loop_scope="module", autouse=True)
async def names(whole_mesh):
    one, two = (whole_mesh.pod(name).addresses[0] for name in ("one", "two"))
    known = {
        "one.example.com": [one],
        "two.example.com": [two],
        "both.example.com": [one, two],
        "any.wild.example.com": [two],
    }
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(lambda: Names(known), local_addr=("127.0.0.1", 0))
    for server in (whole_mesh.engine._dns.for_pods, whole_mesh.engine._dns.for_proxies):
        server._upstreams = lambda: [transport.get_extra_info("sockname")[:2]]
    yield known
    transport.close()


def entry(name, host, *ports, namespace="shop", **spec):
    body = {"hosts": [host] if isinstance(host, str) else host, "ports": list(ports), **spec}
    return istio("ServiceEntry", name, body, namespace)


async def answering(mesh, url, count=20, **arguments):
    answers = await mesh.requests("client", url, count, parallel=1, keep_alive=False, **arguments)
    assert {answer["status"] for answer in answers} == {200}, answers[-1]
    return Counter(answer["body"]["pod"].rpartition("-")[0] for answer in answers)


async def members(mesh, cluster):
    return await mesh.stat("client", rf"^cluster\.{cluster}\.membership_total$")


async def used(mesh, cluster):
    return await mesh.stat("client", rf"^cluster\.{cluster}\.upstream_rq_total$")


@proves("ServiceEntry", "spec.resolution", "spec.hosts", "spec.ports[].number", "spec.ports[].protocol")
@proves("ServiceEntry", "spec.ports[].targetPort")
async def test_with_resolution_none_a_host_is_called_at_the_address_that_the_caller_used(mesh):
    await mesh.try_out(
        entry("exact", "one.example.com", HTTP, resolution="NONE"),
        entry("wild", "*.wild.example.com", HTTP, resolution="NONE"),
    )
    assert await answering(mesh, "http://one.example.com:8080/") == {"one": 20}
    assert await used(mesh, r"outbound\|8080\|\|one\.example\.com") == 20
    assert await answering(mesh, "http://any.wild.example.com:8080/") == {"two": 20}
    assert await used(mesh, r"outbound\|8080\|\|\*\.wild\.example\.com") == 20
    elsewhere = [{**HTTP, "number": 1234, "targetPort": 8080}, {**TCP, "number": 1235, "targetPort": 9000}]
    await mesh.try_out(
        entry("two", "two.example.com", *elsewhere, resolution="NONE", addresses=[mesh.pod("two").addresses[0]])
    )
    assert await answering(mesh, "http://two.example.com:1234/") == {"two": 20}
    heard = await mesh.tell("client", "tcp", host="two.example.com", port=1235, send="hello", half_close=True)
    assert heard["received"] == "hello<end of file seen>"


@proves("ServiceEntry", "spec.resolution")
async def test_with_dynamic_dns_the_proxy_resolves_the_host_of_each_request_or_its_sni(mesh):
    tls = {"number": 9443, "name": "tls", "protocol": "TLS"}
    await mesh.try_out(entry("dynamic", "*.example.com", HTTP, tls, resolution="DYNAMIC_DNS"))
    for name in HIDDEN:  # the caller's own address leads nowhere
        called = {"headers": {"host": f"{name}.example.com:8080"}}
        assert await answering(mesh, "http://240.9.9.9:8080/", **called) == {name: 20}
        seen = await mesh.tell(
            "client", "names", host="240.9.9.9", port=9443, count=3, server_name=f"{name}.example.com"
        )
        assert {each.rpartition("-")[0] for each in seen} == {name}
    unknown = await mesh.get("client", "http://240.9.9.9:8080/", headers={"host": "unknown.example.com:8080"})
    assert unknown["status"] == 503
    said = await weft(
        "explain",
        "client",
        "--to",
        "http://240.9.9.9:8080/",
        "-H",
        "host: one.example.com:8080",
        "--mesh",
        mesh.engine.name,
    )
    assert "the proxy resolves one.example.com by DNS and calls its port 8080" in said, said
    said = await weft("why", "client", "cluster", "outbound|8080||*.example.com", "--mesh", mesh.engine.name)
    assert "endpoint-by-called-name" in said, said


@proves(
    "ServiceEntry",
    "spec.resolution",
    "spec.endpoints[].address",
    "spec.endpoints[].ports",
    "spec.endpoints[].weight",
    "spec.endpoints[].labels",
    "spec.ports[].name",
    "spec.location",
)
async def test_endpoints_of_a_service_entry_are_called_by_weight_and_port_and_labels(mesh):
    one, two = mesh.pod("one").addresses[0], mesh.pod("two").addresses[0]
    listed = [
        {"address": one, "ports": {"web": 8080}, "weight": 3, "labels": {"version": "a"}},
        {"address": two, "ports": {"web": 8080}, "weight": 1, "labels": {"version": "b"}},
    ]
    port = {"number": 80, "name": "web", "protocol": "HTTP"}
    made = entry("static", "static.example.com", port, resolution="STATIC", location="MESH_EXTERNAL", endpoints=listed)
    rule = {
        "host": "static.example.com",
        "trafficPolicy": {"loadBalancer": {"simple": "ROUND_ROBIN"}},
        "subsets": [{"name": "b", "labels": {"version": "b"}}],
    }
    await mesh.try_out(made, istio("DestinationRule", "static", rule))
    assert await answering(mesh, "http://static.example.com/", 40) == {"one": 30, "two": 10}
    route = {"hosts": ["static.example.com"], "http": [{"route": [to("static.example.com", "b")]}]}
    await mesh.try_out(made, istio("DestinationRule", "static", rule), istio("VirtualService", "static", route))
    assert await answering(mesh, "http://static.example.com/") == {"two": 20}


def west():
    """All calls go there, from any locality."""
    return {"loadBalancer": {"localityLbSetting": {"distribute": [{"from": "*", "to": {"west": 100}}]}}}


@proves("ServiceEntry", "spec.endpoints[].locality")
@proves("WorkloadEntry", "spec.locality")
async def test_endpoints_are_in_the_locality_that_their_entry_declares(mesh):
    listed = [
        {"address": mesh.pod(name).addresses[0], "locality": place}
        for name, place in (("one", "east"), ("two", "west"))
    ]
    entries = [
        istio("WorkloadEntry", f"machine-{number}", {**each, "labels": {"app": "placed"}})
        for number, each in enumerate(listed)
    ]
    await mesh.try_out(
        entry("listed", "listed.example.com", HTTP, resolution="STATIC", endpoints=listed),
        istio("DestinationRule", "listed", {"host": "listed.example.com", "trafficPolicy": west()}),
        entry(
            "placed", "placed.example.com", HTTP, resolution="STATIC", workloadSelector={"labels": {"app": "placed"}}
        ),
        istio("DestinationRule", "placed", {"host": "placed.example.com", "trafficPolicy": west()}),
        *entries,
    )
    for host in ("listed", "placed"):
        assert await answering(mesh, f"http://{host}.example.com:8080/") == {"two": 20}


@proves("ServiceEntry", "spec.endpoints[].serviceAccount", "spec.subjectAltNames", "spec.location")
@proves("WorkloadEntry", "spec.serviceAccount")
async def test_service_accounts_and_subject_alt_names_limit_which_endpoints_are_trusted(mesh):
    strict = {
        "apiVersion": "security.istio.io/v1",
        "kind": "PeerAuthentication",
        "metadata": {"name": "shared", "namespace": "shop"},
        "spec": {"selector": {"matchLabels": {"app": "shared"}}, "mtls": {"mode": "STRICT"}},
    }
    address = mesh.pod("shared").addresses[0]
    inside = {"resolution": "STATIC", "location": "MESH_INTERNAL"}
    name = "spiffe://cluster.local/ns/shop/sa/default"
    entries = [
        istio(
            "WorkloadEntry",
            account,
            {
                "address": address,
                "serviceAccount": account,
                "labels": {"app": f"of-{account}", "security.istio.io/tlsMode": "istio"},
            },
        )
        for account in ("default", "other")
    ]
    await mesh.try_out(
        strict,
        *entries,
        *(
            entry(
                f"selected-{account}",
                f"selected-{account}.example.com",
                HTTP,
                workloadSelector={"labels": {"app": f"of-{account}"}},
                **inside,
            )
            for account in ("default", "other")
        ),
        *(
            entry(
                f"listed-{account}",
                f"listed-{account}.example.com",
                HTTP,
                endpoints=[{"address": address, "serviceAccount": account}],
                **inside,
            )
            for account in ("default", "other")
        ),
        entry(
            "named",
            "named.example.com",
            HTTP,
            subjectAltNames=[name],
            endpoints=[{"address": address, "serviceAccount": "other"}],
            **inside,
        ),
    )
    for host, status in (
        ("selected-default", 200),
        ("selected-other", 503),
        ("listed-default", 200),
        ("listed-other", 503),
        ("named", 200),
    ):
        assert (await mesh.get("client", f"http://{host}.example.com:8080/"))["status"] == status, host


@proves("ServiceEntry", "spec.resolution", "spec.endpoints[].address", "spec.ports[].targetPort")
async def test_with_dns_resolution_the_proxy_resolves_the_names_of_endpoints(mesh):
    port = {"number": 80, "name": "http", "protocol": "HTTP", "targetPort": 8080}
    balance = {"host": "both.example.com", "trafficPolicy": {"loadBalancer": {"simple": "ROUND_ROBIN"}}}
    rule = istio("DestinationRule", "both", balance)
    await mesh.try_out(entry("both", "both.example.com", port, resolution="DNS"), rule)
    cluster = r"outbound\|80\|\|both\.example\.com"
    await eventually(lambda: members(mesh, cluster))
    assert await members(mesh, cluster) == 2
    assert await answering(mesh, "http://both.example.com/") == {"one": 10, "two": 10}
    await mesh.try_out(entry("both", "both.example.com", port, resolution="DNS_ROUND_ROBIN"), rule)
    await eventually(lambda: members(mesh, cluster))
    assert await members(mesh, cluster) == 1
    assert (await answering(mesh, "http://both.example.com/")).keys() <= {"one", "two"}
    listed = [{"address": "one.example.com"}, {"address": "two.example.com"}]
    await mesh.try_out(
        entry("named", "named.example.com", port, resolution="DNS", endpoints=listed),
        istio("DestinationRule", "named", {**balance, "host": "named.example.com"}),
    )
    await eventually(lambda: members(mesh, r"outbound\|80\|\|named\.example\.com"))
    assert await answering(mesh, "http://named.example.com/") == {"one": 10, "two": 10}


@proves("ServiceEntry", "spec.addresses")
async def test_connections_reach_the_service_entry_that_has_their_address_or_address_range(mesh):
    await mesh.try_out(
        entry("vip", "vip.example.com", TCP, addresses=["192.0.2.10"], resolution="STATIC",
              endpoints=[{"address": mesh.pod("one").addresses[0]}]),
        entry("range", "range.example.com", TCP, addresses=["198.51.100.0/24"], resolution="STATIC",
              endpoints=[{"address": mesh.pod("two").addresses[0]}]),
    )  # fmt: skip
    for address, pod in (("192.0.2.10", "one"), ("198.51.100.77", "two")):
        before = len((await mesh.tell(pod, "tcp_seen"))["peers"])
        answer = await mesh.tell("client", "tcp", host=address, port=9000, send="hello", half_close=True)
        assert answer["received"] == "hello<end of file seen>", (address, answer)
        assert len((await mesh.tell(pod, "tcp_seen"))["peers"]) == before + 1


@proves("ServiceEntry", "spec.workloadSelector.labels")
@proves("WorkloadEntry", "spec.address", "spec.labels", "spec.ports", "spec.weight")
async def test_a_service_entry_calls_selected_workload_entries_at_their_address_and_port_by_weight(mesh):
    port = {"number": 80, "name": "web", "protocol": "HTTP"}
    entries = [
        istio(
            "WorkloadEntry",
            name,
            {
                "address": mesh.pod(name).addresses[0],
                "labels": {"app": "machine"},
                "ports": {"web": 8080},
                "weight": weight,
            },
        )
        for name, weight in (("one", 1), ("two", 4))
    ]
    rule = {"host": "machines.example.com", "trafficPolicy": {"loadBalancer": {"simple": "ROUND_ROBIN"}}}
    await mesh.try_out(
        entry(
            "machines",
            "machines.example.com",
            port,
            resolution="STATIC",
            location="MESH_INTERNAL",
            workloadSelector={"labels": {"app": "machine"}},
        ),
        istio("DestinationRule", "machines", rule),
        *entries,
    )
    assert await answering(mesh, "http://machines.example.com/", 40) == {"one": 8, "two": 32}


async def test_a_workload_entry_with_a_host_name_is_an_endpoint_only_with_dns_resolution(mesh):
    """With STATIC resolution it does not affect the others: Envoy would reject all endpoints because of one name."""
    labels = {"labels": {"app": "machine"}}
    machines = [
        istio("WorkloadEntry", "one", {"address": mesh.pod("one").addresses[0], **labels}),
        istio("WorkloadEntry", "two", {"address": "two.example.com", **labels}),
    ]
    for resolution, answers in (("STATIC", {"one"}), ("DNS", {"one", "two"})):
        selecting = entry("machines", "machines.example.com", HTTP, resolution=resolution, workloadSelector=labels)
        await mesh.try_out(selecting, *machines)
        await eventually(
            lambda: members(mesh, r"outbound\|8080\|\|machines\.example\.com"),
            lambda count, answers=answers: count == len(answers),
        )
        assert {*await answering(mesh, "http://machines.example.com:8080/", 30)} == answers


async def seen_by(mesh, workload):
    found = await mesh.stats(mesh.pod(workload).name, r"^cluster\.outbound.*membership_total$")
    return {name.split("|")[3].removesuffix(".membership_total") for name in found}


@proves("ServiceEntry", "spec.exportTo")
@proves("DestinationRule", "spec.exportTo")
@proves("VirtualService", "spec.exportTo")
async def test_service_entries_and_routes_and_rules_apply_only_in_the_namespaces_of_their_export_to(mesh):
    static = {"resolution": "STATIC", "endpoints": [{"address": mesh.pod("one").addresses[0]}]}
    own = {"hosts": ["shared"], "exportTo": ["."], "http": [{"directResponse": {"status": 418}}]}
    await mesh.try_out(
        entry("here", "here.example.com", HTTP, exportTo=["."], **static),
        entry("field", "field.example.com", HTTP, exportTo=["field"], **static),
        entry("nobody", "nobody.example.com", HTTP, exportTo=["~"], **static),
        entry("all", "all.example.com", HTTP, exportTo=["*"], **static),
        istio("VirtualService", "shared", own),
        istio(
            "DestinationRule",
            "shared",
            {
                "host": "shared",
                "exportTo": ["."],
                "trafficPolicy": {"connectionPool": {"http": {"h2UpgradePolicy": "DO_NOT_UPGRADE"}}},
            },
        ),
    )
    ours, theirs = await seen_by(mesh, "client"), await seen_by(mesh, "peer")
    assert {"here.example.com", "all.example.com"} <= ours
    assert not {"field.example.com", "nobody.example.com"} & ours
    assert {"field.example.com", "all.example.com"} <= theirs
    assert not {"here.example.com", "nobody.example.com"} & theirs
    assert (await mesh.get("client", "http://shared/"))["status"] == 418
    assert (await mesh.get("peer", "http://shared.shop/"))["status"] == 200
    http2 = r"^cluster\.outbound\|80\|\|shared\.shop.*upstream_cx_http2_total$"
    assert await mesh.stat("peer", http2) == 1  # the rule does not apply to this workload


@proves(
    "Sidecar",
    "spec.ingress[].port.number",
    "spec.ingress[].port.protocol",
    "spec.ingress[].defaultEndpoint",
    "spec.ingress[].connectionPool",
    "spec.inboundConnectionPool",
)
async def test_an_ingress_listener_forwards_its_port_to_its_default_endpoint_with_its_connection_pool(mesh):
    assert (await mesh.get("client", "http://inner/"))["status"] == 503
    ingress = {
        "port": {"number": 9090, "name": "http", "protocol": "HTTP"},
        "defaultEndpoint": "127.0.0.1:8080",
        "captureMode": "IPTABLES",
    }
    few = {"tcp": {"maxConnections": 1}, "http": {"http1MaxPendingRequests": 1}}
    once = virtual_service("inner", {"retries": {"attempts": 0}, "route": [to("inner")]})
    await mesh.tell("inner", "script", path="/busy", forever={"delay": 0.3})
    for pools in ({}, {"ingress": few}, {"all": few}):
        listener = {**ingress, **({"connectionPool": pools["ingress"]} if "ingress" in pools else {})}
        spec = {"workloadSelector": {"labels": {"app": "inner"}}, "ingress": [listener]}
        if "all" in pools:
            spec["inboundConnectionPool"] = pools["all"]
        await mesh.try_out(istio("Sidecar", "inner", spec), once)
        assert (await mesh.get("client", "http://inner/"))["status"] == 200
        statuses = Counter(each["status"] for each in await mesh.requests("client", "http://inner/busy", 8, parallel=8))
        assert (503 in statuses) is bool(pools), (pools, statuses)


@proves("Sidecar", "spec.ingress[].defaultEndpoint")
async def test_an_ingress_listener_forwards_to_each_kind_of_default_endpoint(mesh):
    """All ports lead to the same application; only it listens where the service leads."""
    port = {"number": 9090, "name": "http", "protocol": "HTTP"}
    for endpoint in ("127.0.0.1:8080", "[::1]:8080", "0.0.0.0:8080", "[::]:8080", f"unix://{mesh.sockets}/inner-http"):
        spec = {
            "workloadSelector": {"labels": {"app": "inner"}},
            "ingress": [{"port": port, "defaultEndpoint": endpoint}],
        }
        await mesh.try_out(istio("Sidecar", "inner", spec))
        answer = await mesh.get("client", "http://inner/")
        assert answer["status"] == 200 and answer["body"]["pod"] == "inner-0", (endpoint, answer)


CALL_BY_TLS = """
import http.client, json, ssl, sys
address, authority, name, client = sys.argv[1:5]
context = ssl.create_default_context(cafile=authority)
context.check_hostname = False
if client:
    context.load_cert_chain(client)
try:
    connection = http.client.HTTPSConnection(address, 9443, context=context, timeout=20)
    connection.request("GET", "/", headers={"host": name})
    print(connection.getresponse().status)
except (OSError, http.client.HTTPException) as error:
    print("refused")
"""


@proves(
    "Sidecar",
    "spec.ingress[].tls.mode",
    "spec.ingress[].tls.serverCertificate",
    "spec.ingress[].tls.privateKey",
    "spec.ingress[].tls.caCertificates",
)
@pytest.mark.parametrize("mode", ["SIMPLE", "MUTUAL"])
async def test_a_sidecar_terminates_the_tls_of_callers_outside_the_mesh(mesh, mode):
    authority = Authority()
    server, client = authority.issue("inner.example.com"), authority.issue("client.example.com")
    place = mesh.sockets / f"tls-{mode}"
    place.mkdir(mode=0o755)
    held = {"tls.crt": server.certificate, "tls.key": server.key, "ca.crt": server.root}
    held["client.pem"] = client.certificate + client.key
    for name, content in held.items():
        (place / name).write_bytes(content)
        (place / name).chmod(0o644)
    tls = {"mode": mode, "serverCertificate": f"{place}/tls.crt", "privateKey": f"{place}/tls.key"}
    if mode == "MUTUAL":
        tls["caCertificates"] = f"{place}/ca.crt"
    listener = {
        "port": {"number": 9443, "name": "https", "protocol": "HTTPS"},
        "defaultEndpoint": "127.0.0.1:8080",
        "tls": tls,
    }
    selected = {"labels": {"app": "inner"}}
    off = {"selector": {"matchLabels": selected["labels"]}, "mtls": {"mode": "DISABLE"}}
    await mesh.try_out(
        istio("Sidecar", "inner", {"workloadSelector": selected, "ingress": [listener]}),
        istio("PeerAuthentication", "inner", off) | {"apiVersion": "security.istio.io/v1"},
    )
    address = mesh.pod("inner").addresses[0]

    async def call(certificate=""):
        script = [sys.executable, "-c", CALL_BY_TLS, address, f"{place}/ca.crt", "inner.example.com", certificate]
        return (await weft("exec", "--mesh", mesh.engine.name, "one", *script)).strip()

    await eventually(lambda: call(f"{place}/client.pem"), lambda status: status == "200")
    assert await call() == ("200" if mode == "SIMPLE" else "refused")
    plain = await mesh.get("one", f"http://{address}:9443/")
    assert plain["status"] != 200
    said = await weft(
        "explain", "one", "--to", f"https://{address}:9443/", "--mesh", mesh.engine.name, code=None, both=True
    )
    expected = "inner-0.shop terminates the caller's TLS" if mode == "SIMPLE" else "presents no certificate"
    assert expected in said and ("delivered" in said) == (mode == "SIMPLE"), said
    name = f"file-cert:{place}/tls.crt~{place}/tls.key"
    said = await weft("why", "inner", "secret", name, "--mesh", mesh.engine.name)
    assert "Sidecar shop/inner" in said, said


@proves("Sidecar", "spec.egress[].port.number")
async def test_an_egress_listener_with_a_port_shows_its_hosts_only_on_that_port(mesh):
    static = {"resolution": "STATIC", "endpoints": [{"address": mesh.pod("one").addresses[0]}]}
    more = {"number": 8081, "name": "http-more", "protocol": "HTTP"}
    port = {"number": 8080, "name": "http", "protocol": "HTTP"}
    scope = {
        "workloadSelector": {"labels": {"app": "client"}},
        "egress": [
            {"port": port, "captureMode": "DEFAULT", "hosts": ["./two-ports.example.com"]},
            {"hosts": ["./shared.shop.svc.cluster.local"]},
        ],
    }
    await mesh.try_out(
        entry("two-ports", "two-ports.example.com", HTTP, more, **static), istio("Sidecar", "one", scope)
    )
    clusters = await mesh.stats(mesh.pod("client").name, r"^cluster\.outbound.*two-ports.*membership_total$")
    assert [name.split("|")[1] for name in clusters] == ["8080"]
    assert await answering(mesh, "http://two-ports.example.com:8080/") == {"one": 20}


@proves("Sidecar", "spec.egress[].hosts")
async def test_destinations_of_routes_of_visible_hosts_are_reachable_only_through_these_routes(mesh):
    one, two = ({"resolution": "STATIC", "endpoints": [{"address": mesh.pod(name).addresses[0]}]} for name in HIDDEN)
    scope = istio(
        "Sidecar",
        "one",
        {
            "workloadSelector": {"labels": {"app": "client"}},
            "egress": [{"hosts": ["./shared.shop.svc.cluster.local"]}],
            "outboundTrafficPolicy": {"mode": "REGISTRY_ONLY"},
        },
    )
    hidden = [
        entry("one", "one.hidden.example.com", HTTP, namespace="field", **one),
        entry("two", "two.hidden.example.com", HTTP, namespace="field", **two),
    ]
    leaf = istio("VirtualService", "leaf", {"http": [{"route": [to("two.hidden.example.com")]}]}, namespace="field")
    root = virtual_service(
        "shared",
        {"match": [{"uri": {"prefix": "/one"}}], "route": [to("one.hidden.example.com")]},
        {"match": [{"uri": {"prefix": "/two"}}], "delegate": {"name": "leaf", "namespace": "field"}},
        {"route": [to("shared")]},
    )
    for documents in ((), (leaf, root), (root,), (leaf, root), ()):
        await mesh.try_out(scope, *hidden, *documents)
        led = {name for name, by in zip(HIDDEN, (root, leaf), strict=True) if by in documents}
        assert await seen_by(mesh, "client") == {
            "shared.shop.svc.cluster.local",
            *(f"{name}.hidden.example.com" for name in led),
        }
        for name in HIDDEN:
            answer = await mesh.get("client", f"http://shared/{name}")
            assert answer["body"]["pod"] == f"{name if name in led else 'shared'}-0", (name, led)
            url = f"http://{mesh.pod(name).addresses[0]}:8080/"
            answer = await mesh.get("client", url, headers={"host": f"{name}.hidden.example.com:8080"})
            assert answer["status"] == 0, answer  # closed: no visible host has this port


@proves("Sidecar", "spec.egress[].port.protocol")
@pytest.mark.parametrize(
    ("declared", "tried"), [("tcp", "HTTP"), ("http", "TCP"), ("grpc", "HTTP"), ("undeclared", "HTTP")]
)
async def test_the_sidecar_port_sets_the_downstream_protocol_and_the_service_port_the_upstream_protocol(
    mesh, declared, tried
):
    """Requests that the caller's proxy parses as HTTP get the responses of its routes; TCP bytes do not."""
    called = service("called", {"name": declared, "port": 8080}, selector={"app": "shared"})
    routes = [{"match": [{"uri": {"exact": "/read"}}], "directResponse": {"status": 418}}, {"route": [to("called")]}]
    shown = {"hosts": ["./called.shop.svc.cluster.local"]}
    for port in ({"number": 8080}, {"number": 8080, "protocol": tried}):
        read = port.get("protocol", "TCP" if declared == "tcp" else "HTTP") == "HTTP"
        scope = {"workloadSelector": {"labels": {"app": "client"}}, "egress": [{**shown, "port": port}, shown]}
        await mesh.try_out(called, virtual_service("called", *routes), istio("Sidecar", "one", scope))
        assert (await mesh.get("client", "http://called:8080/read"))["status"] == (418 if read else 200), port
        if declared != "grpc":  # the application does not speak HTTP/2
            assert (await mesh.get("client", "http://called:8080/"))["status"] == 200


@proves(
    "Sidecar",
    "spec.outboundTrafficPolicy.egressProxy.host",
    "spec.outboundTrafficPolicy.egressProxy.port.number",
    "spec.outboundTrafficPolicy.egressProxy.subset",
)
async def test_traffic_to_unknown_hosts_goes_to_the_egress_proxy(mesh):
    """The proxy's host need not be among the hosts of the Sidecar."""
    one, two = ({"address": mesh.pod(name).addresses[0], "labels": {"is": name}} for name in ("one", "two"))
    proxy = entry("proxy", "proxy.example.com", HTTP, TCP, resolution="STATIC", endpoints=[one, two])
    subsets = [{"name": "two", "labels": {"is": "two"}}]
    rule = istio("DestinationRule", "proxy", {"host": "proxy.example.com", "subsets": subsets})

    async def through(**to):
        policy = {"mode": "ALLOW_ANY", "egressProxy": {"host": "proxy.example.com", **to}}
        shown = {"egress": [{"hosts": ["./shared.shop.svc.cluster.local"]}], "outboundTrafficPolicy": policy}
        await mesh.try_out(proxy, rule, istio("Sidecar", "default", shown))

    await through(port={"number": 8080})
    clusters = await mesh.stats(mesh.pod("client").name, r"^cluster\.outbound.*proxy\.example.*membership_total$")
    assert {name.split("|")[1] for name in clusters} == {"8080"}  # no other port of its host becomes visible
    answer = await mesh.get("client", "http://198.51.100.9/", headers={"Host": "nobody.example.com"})
    assert (answer["status"], answer["body"]["host"]) == (200, "nobody.example.com")
    assert (await mesh.get("client", "http://shared/"))["body"]["pod"].startswith("shared-")
    await through(port={"number": 9000}, subset="two")
    before = len((await mesh.tell("two", "tcp_seen"))["peers"])
    answer = await mesh.tell("client", "tcp", host="198.51.100.9", port=7777, send="hello", half_close=True)
    assert answer["received"] == "hello<end of file seen>"
    assert len((await mesh.tell("two", "tcp_seen"))["peers"]) == before + 1


async def test_two_service_entries_of_a_namespace_with_one_host_are_merged(mesh):
    def entry(name, port, pod):
        return istio("ServiceEntry", name, {
            "hosts": ["merged.example.com"], "addresses": ["240.9.9.30"], "resolution": "STATIC", "ports": [port],
            "endpoints": [{"address": mesh.pod(pod).addresses[0]}],
        })  # fmt: skip

    await mesh.try_out(
        entry("a", HTTP, "one"), entry("b", {**HTTP, "number": 81, "name": "second", "targetPort": 8080}, "two")
    )
    for port, pod in ((8080, "one-0"), (81, "two-0")):
        answer = await mesh.get("client", f"http://240.9.9.30:{port}/")
        assert (answer["status"], answer["body"]["pod"]) == (200, pod)
