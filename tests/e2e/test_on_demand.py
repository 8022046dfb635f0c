"""A proxy gets the config of a service when its workload first calls it: that call arrives, in any protocol, and the
proxy does not have the config of other services."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path

import pytest
import pytest_asyncio

from e2e.looking import envoy
from e2e.mesh import running_mesh, tell
from e2e.objects import http_service, istio, service, text, to, virtual_service, workload
from eventually import eventually
from weft.envoy import command
from weft.envoy.difference import differences
from weft.explain.decision import Kind
from weft.inspect.ask.answer import answer as explained
from weft.inspect.ask.question import Question
from weft.inspect.ask.why import every
from weft.inspect.debug.config_dump import as_json
from weft.inspect.describe.pods_and_services import describe_pod
from weft.inspect.describe.text import pod_lines
from weft.inspect.live import live_stage
from weft.model.group import Group
from weft.model.proxy import MARKS
from weft.netns.interception import Interception
from weft.xds.types import CLUSTER, LISTENER

pytestmark = pytest.mark.asyncio(loop_scope="module")

LABELS = {
    "path": "%REQ(:PATH)%",
    "cluster": "%UPSTREAM_CLUSTER_RAW%",
    "flags": "%RESPONSE_FLAGS%",
    "local": "%DOWNSTREAM_LOCAL_ADDRESS%",
    "remote": "%DOWNSTREAM_REMOTE_ADDRESS%",
    "route": "%ROUTE_NAME%",
    "peer": "%DOWNSTREAM_PEER_URI_SAN% %UPSTREAM_PEER_URI_SAN%",
    "to": "%UPSTREAM_HOST%",
}
PROVIDER = {"name": "json", "envoyFileAccessLog": {"path": "/dev/stdout", "logFormat": {"labels": LABELS}}}
ON = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "istio", "namespace": "istio-system", "annotations": {"weft.dev/on-demand": "true"}},
    "data": {"mesh": json.dumps({"extensionProviders": [PROVIDER]})},
}
LOGGED = istio("Telemetry", "logs", {"accessLogging": [{"providers": [{"name": "json"}]}]}) | {
    "apiVersion": "telemetry.istio.io/v1"
}
SAME = ("cluster", "flags", "local", "peer", "route", "to")
LISTENERS = {"virtualOutboundAgain", "virtualOutboundUnknown"}
OTHERS = ("web", "other", "third", "fourth", "many", "stream")


def files(control: Path) -> dict[str, str]:
    return {
        "settings.yaml": text(ON),
        "client.yaml": text(workload("client", control=control), workload("twins", control=control, replicas=2)),
        "web.yaml": text(
            workload("web", control=control, serve="http=8080 echo=9000 greeting=9001"),
            service(
                "web",
                {"name": "http", "port": 80, "targetPort": 8080},
                {"name": "tcp", "port": 9000},
                {"name": "tcp-greeting", "port": 9001},
                {"name": "undeclared", "port": 7000, "targetPort": 8080},
            ),
            *(http_service(name) | {"spec": http_service("web")["spec"]} for name in OTHERS[1:]),
        ),
        "locked.yaml": text(
            workload("locked", control=control, namespace="locked"),
            istio("Sidecar", "default", {"outboundTrafficPolicy": {"mode": "REGISTRY_ONLY"}}, namespace="locked"),
        ),
        "named.yaml": text(
            workload("named", control=control, namespace="named"),
            istio("Sidecar", "default", {"egress": [{"hosts": ["shop/web.shop.svc.cluster.local"]}]},
                  namespace="named"),
        ),
    }  # fmt: skip


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def whole_mesh():
    """Two workers in each Envoy: the one that accepts a connection need not be the one that holds it."""
    defaults = command.options.__kwdefaults__
    before, defaults["concurrency"] = defaults["concurrency"], 2
    try:
        async with running_mesh(files) as mesh:
            yield mesh
    finally:
        defaults["concurrency"] = before


async def dump(mesh, workload):
    return json.dumps(await envoy(mesh, workload, "/config_dump?include_eds"))


def group(mesh, workload) -> Group:
    return next(each.group for each in mesh.control.proxies() if f"~{mesh.pod(workload).name}." in each.node_id)


def names(mesh, workload, type_url):
    return set(mesh.control._snapshots.resources(group(mesh, workload), type_url))


async def test_the_first_post_arrives_though_the_proxy_did_not_have_the_service(mesh):
    before = await dump(mesh, "client")
    assert not any(f"{name}.shop.svc" in before for name in OTHERS)
    answer = await mesh.get("client", f"http://{address(mesh, 'web')}/first", method="POST", body="some bytes")
    assert (answer["status"], answer["body"]["body"]) == (200, "some bytes")
    # It took the whole path, like any call: over mutual TLS to the other proxy.
    assert answer["body"]["peer"] == "127.0.0.6"
    after = await dump(mesh, "client")
    assert "web.shop.svc" in after
    assert not any(f"{name}.shop.svc" in after for name in OTHERS[1:])


async def test_the_first_call_receives_the_greeting_of_a_server_first_protocol(mesh):
    call = {"host": address(mesh, "web"), "port": 9001, "send": "hi\n", "half_close": True, "wait_first": True}
    answer = await mesh.tell("twins", "tcp", **call)
    assert answer["first"].startswith("greetings from web"), answer
    assert address(mesh, "web") in await held(mesh, mesh.pod("twins").name)


async def test_calls_during_a_held_first_call_reach_the_same_service(mesh):
    """The listener that accepts them uses routes that others share: these must be sent before it."""
    await mesh.try_out(*(http_service(f"rush-{n}") | {"spec": http_service("web")["spec"]} for n in range(12)))

    async def passed_on():
        return await mesh.stats(mesh.pod("client").name, r"^cluster\.PassthroughCluster\.upstream_cx_total$")

    before = await passed_on()
    for number in range(12):
        url = f"http://{address(mesh, f'rush-{number}')}/"
        seen = await mesh.tell("client", "paced", url=url, method="GET", clients=40, each=1, pause=0, apart=0.002)
        assert seen["statuses"] == {"200": 40}, (number, seen)
    assert await passed_on() == before, "to whom it may concern, and unprotected"


async def test_a_first_call_that_half_closes_with_its_first_bytes_gets_its_response(mesh):
    """As `nc -N` does. The end of file arrives before the call proceeds, and must not end the held connection."""
    port, selector = {"name": "tcp", "port": 9000}, {"app": "web"}
    await mesh.try_out(*(service(f"first-{number}", port, selector=selector) for number in range(60)))
    calls = [{"host": address(mesh, f"first-{number}"), "port": 9000, "send": "hello"} for number in range(60)]
    answers = [await mesh.tell("client", "tcp", **call, half_close=True) for call in calls]
    assert [answer["received"] for answer in answers] == ["hello<end of file seen>"] * 60, answers
    went_on = await held(mesh, mesh.pod("client").name)
    assert [went_on[call["host"]] for call in calls] == [1] * 60


@pytest.mark.parametrize("port", [15001, 15002, 15003])
async def test_a_call_to_the_proxys_own_ports_does_not_loop(mesh, port):
    for host in ("127.0.0.1", "::1"):
        called = await mesh.tell("client", "tcp", host=host, port=port, send="x", timeout=5)
        assert called.get("received", "") == "", called
    name = {15001: "0.0.0.0_15001", 15002: "127.0.0.1_15002", 15003: "127.0.0.1_15003"}[port]
    found = await mesh.stats(mesh.pod("client").name, rf"^listener\.{name}\.downstream_cx_active$")
    assert set(found.values()) == {0}, found


MARKED = """
import socket, sys
with socket.socket() as connection:
    connection.settimeout(8)
    connection.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, int(sys.argv[3]) << 2)
    try:
        connection.connect((sys.argv[1], int(sys.argv[2])))
        connection.sendall(b"hello")
        connection.shutdown(socket.SHUT_WR)
        print(connection.recv(100).decode())
    except OSError as error:
        print(type(error).__name__)
"""


@pytest.mark.parametrize("mark", [mark for mark, _ in MARKS.values()])
async def test_a_caller_that_sets_the_proxys_socket_mark_gets_no_exemption(mesh, mark):
    """The connection neither bypasses REGISTRY_ONLY nor passes the listener of a service in plaintext."""

    async def call(caller, host, port):
        enter = ("nsenter", "-t", str(mesh.pod(caller).pid), "-n", sys.executable, "-c", MARKED)
        process = await asyncio.create_subprocess_exec(
            *enter, host, str(port), str(mark), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        return (await process.communicate())[0].decode().strip()

    passed_on = r"^(cluster\.PassthroughCluster\.upstream_cx_total|listener\.127.0.0.1_1500[23]\.downstream_cx_total)$"
    before = await mesh.stats(mesh.pod("named").name, passed_on)
    assert (await call("named", address(mesh, "web"), 9000)).startswith("hello")
    assert await mesh.stats(mesh.pod("named").name, passed_on) == before
    assert await call("locked", nobody(address(mesh, "web"), 78), 9000) in ("", "ConnectionResetError")
    for port in (15002, 15003):  # nor can they be reached at the pod's own address, from it or from another
        for caller in ("locked", "client"):
            assert await call(caller, mesh.pod("locked").addresses[0], port) in ("", "ConnectionResetError",
                                                                                "ConnectionRefusedError")  # fmt: skip
    assert set((await mesh.stats(mesh.pod("locked").name, r"^cluster\.PassthroughCluster.*cx_total$")).values()) == {0}


async def test_a_port_scan_of_one_address_is_held_by_one_cluster(mesh):
    there = nobody(address(mesh, "web"), 77)
    for port in range(20_000, 20_200):
        assert (await mesh.tell("locked", "tcp", host=there, port=port, send="x", timeout=3))["received"] == ""
    assert (await held(mesh, mesh.pod("locked").name))[there] == 200
    clusters = (await envoy(mesh, "locked", "/clusters?format=json"))["cluster_statuses"]
    assert [each["name"] for each in clusters if there in each["name"]] == [f"hold|15001|{there}"]


async def test_a_first_call_is_logged_once_like_any_other(mesh):
    await mesh.try_out(http_service("logged") | {"spec": http_service("web")["spec"]}, LOGGED)
    virtual, (first, second) = address(mesh, "logged"), ("/of-all-the-first", "/of-all-the-second")
    for path in (first, second):
        answer = await mesh.get("twins", f"http://{virtual}{path}", keep_alive=False)
        assert (answer["status"], answer["body"]["peer"]) == (200, "127.0.0.6")
    assert (await held(mesh, mesh.pod("twins").name))[virtual] == 1
    for name in ("twins", "web"):
        log = mesh.engine.find_pod(mesh.pod(name).name).log.proxy

        def lines(path, log=log):
            return [json.loads(line) for line in log.tail() if f'"{path}"' in line]

        await eventually(lambda lines=lines: lines(first) and lines(second))
        (one,), (two,) = lines(first), lines(second)
        assert {key: one[key] for key in SAME} == {key: two[key] for key in SAME}
        callers = [each["remote"].rpartition(":")[0] for each in (one, two)]
        assert callers == [mesh.pod("twins").addresses[0]] * 2


@pytest.mark.parametrize(("family", "program"), [(4, "iptables"), (6, "ip6tables")])
async def test_without_iptables_rules_for_the_mark_no_held_call_leaves_the_pod(mesh, family, program):
    """It would leave in plaintext: the mesh's bridge has a route to the service. No installation has such rules;
    this is a safeguard."""
    late = http_service(f"late-{family}") | {"spec": http_service("web")["spec"]}
    await mesh.try_out({**late, "spec": {**late["spec"], "ports": [{"name": "tcp", "port": 9000}]}})
    table = ["nsenter", "-t", str(mesh.pod("client").pid), "-n", program, "-t", "nat"]
    rules = [each.split() for each in Interception().rules(family).splitlines() if "--dscp" in each]
    assert len(rules) == 4
    call = {"host": address(mesh, f"late-{family}", family), "port": 9000, "send": "hello", "timeout": 10}
    for _, chain, *rule in rules:
        subprocess.run([*table, "-D", chain, *rule], check=True)
    try:
        assert (await mesh.tell("client", "tcp", **call, half_close=True))["received"] == ""
    finally:
        for _, chain, *rule in reversed(rules):
            subprocess.run([*table, "-I", chain, *rule], check=True)
    assert (await mesh.tell("client", "tcp", **call, half_close=True))["received"] == "hello<end of file seen>"


async def held(mesh, pod, came_to=15001) -> dict[str, int]:
    """Number of connections that proceeded after they were held, by address."""
    found = await mesh.stats(pod, rf"^cluster\.hold\|{came_to}.*upstream_cx_total$")
    names = {name.removesuffix(".upstream_cx_total").rpartition("|")[2]: each for name, each in found.items()}
    return {name.replace("_", ":"): each for name, each in names.items()}


def address(mesh, name, family=4) -> str:
    """The address without the mesh's DNS, because a lookup would send the service to the proxy."""
    found = next(each for each in mesh.control.mesh.services() if each.name == name)
    return next(each for each in found.addresses if ip_address(each).version == family)


def nobody(known, last) -> str:
    """An unassigned address in the range of services."""
    return ".".join((*known.split(".")[:3], str(last)))


async def test_only_the_first_connection_is_held(mesh):
    virtual = address(mesh, "other")
    for _ in range(5):
        answer = await mesh.get("client", f"http://{virtual}/", headers={"host": "other"}, keep_alive=False)
        assert answer["status"] == 200
    assert (await held(mesh, mesh.pod("client").name))[virtual] == 1


async def test_protocol_detection_works_in_the_first_call(mesh):
    answer = await mesh.get("locked", f"http://{address(mesh, 'web')}:7000/undeclared", method="POST", body="x")
    assert (answer["status"], answer["body"]["peer"]) == (200, "127.0.0.6")


async def test_the_first_call_over_ipv6_arrives(mesh):
    virtual = address(mesh, "third", 6)
    answer = await mesh.get("client", f"http://[{virtual}]/")
    assert (answer["status"], answer["body"]["peer"]) == (200, "127.0.0.6")
    assert (await held(mesh, mesh.pod("client").name))[virtual] == 1


async def test_a_service_called_by_one_replica_is_sent_to_all_replicas(mesh):
    one, two = mesh.pods("twins")
    virtual = address(mesh, "third")
    await tell(mesh.sockets, one.name, "http", url=f"http://{virtual}/")
    await mesh.synced()
    assert (await tell(mesh.sockets, two.name, "http", url=f"http://{virtual}/"))[0]["status"] == 200
    assert virtual in await held(mesh, one.name)
    assert virtual not in await held(mesh, two.name)


async def test_fifty_first_calls_at_once_are_one_push(mesh):
    virtual = address(mesh, "many")
    before = mesh.control.pushes
    answers = await mesh.requests("client", f"http://{virtual}/", 50, parallel=50, keep_alive=False)
    assert [answer["status"] for answer in answers] == [200] * 50
    assert mesh.control.pushes == before + 1


async def test_calls_held_while_the_group_exceeds_its_limit_proceed(mesh, monkeypatch):
    found = [f"crowd-{number}" for number in range(6)]
    await mesh.try_out(
        workload("crowd", control=mesh.sockets),
        *(http_service(name) | {"spec": http_service("web")["spec"]} for name in found),
    )
    await eventually(lambda: any("~crowd-0." in each.node_id for each in mesh.control.proxies()))
    await mesh.ready()
    monkeypatch.setattr(mesh.control.calls, "_most", 3)
    urls = [f"http://{address(mesh, name)}/" for name in found]
    answers = await asyncio.gather(*(mesh.get("crowd", url, method="POST", body=url) for url in urls))
    assert [(answer["status"], answer["body"]["body"]) for answer in answers] == [(200, url) for url in urls]
    assert mesh.control.calls.telling(group(mesh, "crowd")).too_many


async def test_a_route_leads_to_services_that_were_not_called_yet(mesh):
    await mesh.try_out(
        virtual_service("stream", {"route": [{"destination": {"host": "fourth"}}]}),
        virtual_service("fourth", {"headers": {"response": {"set": {"x-by": "fourth"}}},
                                   "route": [{"destination": {"host": "web"}}]}),
    )  # fmt: skip
    answer = await mesh.get("twins", f"http://{address(mesh, 'stream')}/")
    assert answer["status"] == 200
    # The destination of a route may also be called directly, and then its own routes apply.
    assert (await mesh.get("twins", "http://fourth/"))["headers"]["x-by"] == "fourth"


async def test_a_route_changed_later_leads_to_services_that_were_not_called_yet(mesh):
    assert (await mesh.get("client", "http://web/"))["status"] == 200
    assert not any("fourth" in name for name in names(mesh, "client", CLUSTER))
    await mesh.try_out(virtual_service("web", {"route": [{"destination": {"host": "fourth"}}]}))
    assert any("fourth" in name for name in names(mesh, "client", CLUSTER))
    assert (await mesh.get("client", "http://web/"))["status"] == 200
    await mesh.edit({"test.yaml": None})
    assert not any("fourth" in name for name in names(mesh, "client", CLUSTER))
    assert (await mesh.get("client", "http://web/"))["status"] == 200


async def test_with_registry_only_a_call_to_an_unassigned_address_is_closed(mesh):
    assert (await mesh.get("locked", "http://web.shop/"))["status"] == 200
    there = nobody(address(mesh, "web"), 7)
    for port in (80, 9000):
        for _ in (1, 2):  # the second call does not wait, because the result is known
            before = await rounds(mesh, "locked", there)
            answer = await mesh.tell("locked", "tcp", host=there, port=port, send="hello", timeout=3)
            assert (answer["received"], "Timeout" in answer["error"]) == ("", False), answer
            assert await rounds(mesh, "locked", there) == (before[0] + 1, 0)


@pytest.mark.parametrize("family", [4, 6])
async def test_a_call_held_twice_at_a_shared_port_is_treated_as_unknown(mesh, family):
    """It loops twice, and no more."""
    there = f"{ip_address(address(mesh, 'web', family)) + 90}"
    elsewhere = istio(
        "VirtualService",
        "elsewhere",
        {"hosts": ["elsewhere.example"], "http": [{"route": [{"destination": {"host": "web"}}]}]},
    )
    await mesh.try_out(elsewhere)
    assert "0.0.0.0_80" in names(mesh, "client", LISTENER) & names(mesh, "locked", LISTENER)
    passed = r"^cluster\.PassthroughCluster\.upstream_cx_total$"
    for caller, passes in (("locked", 0), ("client", 1)):
        before = await rounds(mesh, caller, there), await mesh.stat(caller, passed)
        answer = await mesh.tell(caller, "tcp", host=there, port=80, send="GET / HTTP/1.0\r\n\r\n", timeout=2)
        assert answer["received"] == ""
        assert await rounds(mesh, caller, there) == (before[0][0] + 1, before[0][1] + 1)
        assert await mesh.stat(caller, passed) == before[1] + passes


async def rounds(mesh, workload, called):
    pod = mesh.pod(workload).name
    return tuple([(await held(mesh, pod, came_to)).get(called, 0) for came_to in (15001, 15002)])


async def test_a_service_that_gets_a_previously_unassigned_address_is_called_there(mesh):
    """The address was called before, and is not requested again."""
    there = nobody(address(mesh, "web"), 8)
    passed = r"^cluster\.PassthroughCluster\.upstream_cx_total$"
    call = {"host": there, "port": 9000, "send": "hello", "timeout": 3}
    before = await mesh.stat("client", passed)
    assert (await mesh.tell("client", "tcp", **call))["received"] == ""
    assert await mesh.stat("client", passed) == before + 1
    late = service("late", {"name": "tcp", "port": 9000}, clusterIP=there, selector={"app": "web"})
    await mesh.try_out(late)
    assert (await mesh.tell("client", "tcp", **call, half_close=True))["received"] == "hello<end of file seen>"
    await mesh.edit({"test.yaml": None})
    assert (await mesh.tell("client", "tcp", **call))["received"] == ""


async def test_hosts_of_a_sidecar_are_sent_before_the_first_call_and_no_others_ever(mesh):
    assert {name for name in names(mesh, "named", CLUSTER) if "outbound|80" in name} == {
        "outbound|80||web.shop.svc.cluster.local"
    }
    assert (await mesh.get("named", "http://web.shop/"))["status"] == 200
    assert await held(mesh, mesh.pod("named").name) == {}
    hidden = address(mesh, "other")
    await mesh.tell("named", "tcp", host=hidden, port=80, send="GET / HTTP/1.0\r\n\r\n", timeout=2)
    assert not any("other" in name for name in names(mesh, "named", CLUSTER))


async def test_a_dns_lookup_delivers_the_config_of_a_service_before_the_call(mesh):
    assert not any("fourth" in name for name in names(mesh, "locked", CLUSTER))
    await mesh.tell("locked", "resolve", name="fourth.shop")
    await eventually(lambda: any("fourth" in name for name in names(mesh, "locked", CLUSTER)))
    await mesh.synced()
    assert (await mesh.get("locked", "http://fourth.shop/"))["status"] == 200
    assert not any(address(mesh, "fourth") in name for name in await held(mesh, mesh.pod("locked").name))


async def test_explain_predicts_a_call_that_was_not_made_yet(mesh):
    question = Question("named", f"http://{address(mesh, 'stream')}/", namespace="named")
    content = (mesh.directory / "named.yaml").read_text()
    await mesh.edit({"named.yaml": content.replace("shop/web.shop.svc", "shop/*.svc")})
    (way,) = explained(live_stage(mesh.control), question, datetime.now(UTC)).explanation.outcomes
    assert any("has not been called yet" in step.what for step in way.steps)
    assert way.verdict.kind is Kind.DELIVERED, way
    assert (await mesh.get("named", f"http://{address(mesh, 'stream')}/"))["status"] == 200
    (way,) = explained(live_stage(mesh.control), question, datetime.now(UTC)).explanation.outcomes
    assert not any("has not been called yet" in step.what for step in way.steps)
    assert way.verdict.kind is Kind.DELIVERED


async def test_every_resource_of_a_proxy_has_a_reason_and_describe_pod_shows_the_size_of_its_scope(mesh):
    stage = live_stage(mesh.control)
    proxy = stage.find("client")
    for kind in ("listener", "cluster"):
        told = {each.name: each.parts for each in every(mesh.control.mesh, stage, proxy, kind)}
        of_holds = {name for name in told if name.startswith("hold|") or name in LISTENERS}
        assert of_holds and all(told[name][0].rules[0].name == "held-calls" for name in of_holds)
    lines = list(pod_lines(describe_pod(mesh.control.mesh, stage, (), "client")))
    assert any(line.startswith("On demand: the proxy has ") and "of 6 services" in line for line in lines), lines


async def test_replicas_have_the_same_config_whichever_of_them_called(mesh):
    """Listeners of earlier tests may still drain, and with them the routes that they use."""
    for pod in mesh.pods("twins"):

        async def alike(pod=pod):
            sent = await as_json(mesh.control.diagnosis, group(mesh, "twins"), include_eds=True)
            url = "http://127.0.0.1:15000/config_dump?include_eds"
            has = (await tell(mesh.sockets, pod.name, "http", url=url))[0]["body"]
            return not differences(sent, has)

        await eventually(alike)


async def test_a_changed_endpoint_reaches_proxies_that_called_the_service(mesh):
    assert (await mesh.get("client", "http://web/"))["status"] == 200
    content = (mesh.directory / "web.yaml").read_text()
    await mesh.edit({"web.yaml": content.replace("VERSION: v1", "VERSION: v9")})

    async def versions():
        return {answer["body"]["version"] for answer in await mesh.requests("client", "http://web/", 5)} == {"v9"}

    await eventually(versions)


async def test_routes_that_come_and_go_leave_open_connections_as_they_are(mesh):
    """A called service has separate HTTP listeners, which do not contain its routes."""
    await mesh.try_out(http_service("routed") | {"spec": http_service("web")["spec"]})
    assert (await mesh.get("client", f"http://{address(mesh, 'routed')}/"))["status"] == 200
    await mesh.tell("client", "keep", name="routed", host=address(mesh, "routed"), port=80)

    async def served_by():
        asked = "GET /kept HTTP/1.1\r\nhost: routed\r\n\r\n"
        answer = (await mesh.tell("client", "say", name="routed", send=asked, until="/kept")).lower()
        assert "http/1.1 200" in answer and "connection: close" not in answer, answer
        return "x-by: route" in answer

    changes = r"^listener_manager\.(listener_modified|total_listeners_draining|total_filter_chains_draining)$"
    before, by = await mesh.stats(mesh.pod("client").name, changes), {"response": {"set": {"x-by": "route"}}}
    assert not await served_by()
    await mesh.edit({"routes.yaml": text(virtual_service("routed", {"headers": by, "route": [to("routed")]}))})
    assert await served_by()
    await mesh.edit({"routes.yaml": None})
    assert not await served_by()
    after = await mesh.stats(mesh.pod("client").name, changes)
    assert all(after[name] <= before[name] for name in before), (before, after)


async def test_turning_on_demand_off_sends_the_whole_config_and_turning_it_on_again_removes_nothing(mesh):
    off = {**ON, "metadata": {**ON["metadata"], "annotations": {"weft.dev/on-demand": "false"}}}
    removed = r"^listener_manager\.(listener_removed|total_listeners_draining|total_filter_chains_draining)$"
    before = await mesh.stats(mesh.pod("client").name, removed)
    called, listeners = names(mesh, "client", CLUSTER), names(mesh, "client", LISTENER)
    await mesh.tell("client", "keep", name="held", host=address(mesh, "web"), port=9000)
    await mesh.edit({"settings.yaml": text(off)})
    everything = names(mesh, "client", CLUSTER)
    assert everything > called and len(names(mesh, "twins", CLUSTER)) > len(OTHERS)
    assert listeners <= names(mesh, "client", LISTENER), "what was held may go on"
    assert (await mesh.get("client", "http://web/"))["status"] == 200
    await mesh.edit({"settings.yaml": text(ON)})
    assert names(mesh, "client", CLUSTER) == everything
    assert (await mesh.get("client", "http://web/"))["status"] == 200
    assert await mesh.tell("client", "say", name="held", send="still.", until="still.") == "still."
    after = await mesh.stats(mesh.pod("client").name, removed)
    assert all(after[name] <= before[name] for name in before), "and what tests before have left still drains"
