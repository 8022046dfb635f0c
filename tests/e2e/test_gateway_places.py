"""A gateway on this machine, called from the machine itself at a published port."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import ssl
import subprocess
from pathlib import Path

import aiohttp
import pytest
from tools.ports import free_port

from authority import Authority
from e2e.commands import weft
from e2e.mesh import running_mesh, unique_name
from e2e.objects import http_service, istio, text, workload
from eventually import eventually
from translate.raw_http2 import MOST, flood_by_http2, settings_by_http2
from weft.envoy import bootstrap
from weft.local.status import PodPhase
from weft.model.proxy import PROXY_UID

pytestmark = pytest.mark.asyncio(loop_scope="module")


PORT, OTHER = free_port(), free_port()
MAX_CONCURRENT_STREAMS, INITIAL_WINDOW_SIZE = 3, 4  # settings of HTTP/2


def edge(*published, name="edge", **spec):
    return {
        "apiVersion": "weft.dev/v1alpha1",
        "kind": "Workload",
        "metadata": {"name": name, "namespace": "shop", "labels": {"app": name, "istio": "ingress"}},
        "spec": {"gateway": {"publish": list(published)}, "serviceAccount": "edge", **spec},
    }


def gateway(*ports):
    servers = [{"port": {"number": n, "name": f"http-{n}", "protocol": "HTTP"}, "hosts": ["*"]} for n in ports]
    return istio("Gateway", "edge", {"selector": {"istio": "ingress"}, "servers": servers})


def route():
    to_app = {"route": [{"destination": {"host": "app"}}]}
    return istio("VirtualService", "outside", {"hosts": ["app.example"], "gateways": ["edge"], "http": [to_app]})


def files(control):
    return {
        "app.yaml": text(
            workload("app", control=control, serve="http=8080", serviceAccount="app"), http_service("app")
        ),
        "caller.yaml": text(workload("caller", control=control)),
        "edge.yaml": text(edge({"port": 80, "hostPort": PORT}), gateway(80), route()),
    }


async def call(port=PORT, path="/", **headers):
    """Send a request from the machine itself; returns the status, and the request as the app received it."""
    async with aiohttp.ClientSession() as session:
        headers = {"host": "app.example", **{name.replace("_", "-"): value for name, value in headers.items()}}
        async with session.get(f"http://127.0.0.1:{port}{path}", headers=headers) as answer:
            said = await answer.text()
            seen = json.loads(said) if answer.status == 200 else {}
            return answer.status, seen | {"headers": dict(seen.get("headers", ()))}


async def served(port=PORT):
    with contextlib.suppress(aiohttp.ClientError, OSError):
        return (await call(port))[0] == 200
    return False


async def test_a_port_of_the_machine_leads_through_the_gateway_into_the_mesh(mesh):
    await eventually(served)
    status, seen = await call(path="/hello")
    assert status == 200
    assert seen["path"] == "/hello"
    assert not [each for each in mesh.problems() if "publish" in each]


async def test_the_gateway_calls_with_its_own_identity_over_mutual_tls(mesh):
    await eventually(served)
    allowed = {
        "selector": {"matchLabels": {"app": "app"}},
        "action": "ALLOW",
        "rules": [{"from": [{"source": {"principals": ["cluster.local/ns/shop/sa/edge"]}}]}],
    }
    policy = istio("AuthorizationPolicy", "app", allowed) | {"apiVersion": "security.istio.io/v1"}
    await mesh.try_out(policy)
    assert (await call())[0] == 200
    assert (await mesh.get("caller", "http://app/"))["status"] == 403


@pytest.mark.parametrize(
    ("rule", "status"),
    [
        ({"from": [{"source": {"remoteIpBlocks": ["127.0.0.1"]}}]}, 403),
        ({"from": [{"source": {"remoteIpBlocks": ["10.0.0.0/8"]}}]}, 200),
        ({"from": [{"source": {"ipBlocks": ["127.0.0.0/8"]}}]}, 403),
        ({"from": [{"source": {"notIpBlocks": ["127.0.0.0/8"]}}]}, 200),
        ({"to": [{"operation": {"ports": ["80"]}}]}, 403),
        ({"to": [{"operation": {"notPorts": ["80"]}}]}, 200),
        ({"to": [{"operation": {"ports": [str(PORT)]}}]}, 200),
        ({"when": [{"key": "destination.port", "values": ["80"]}]}, 403),
        ({"when": [{"key": "source.ip", "values": ["127.0.0.1"]}]}, 403),
    ],
)
async def test_policies_see_the_callers_own_address_and_the_gateways_port(mesh, rule, status):
    """Policies match the caller's address and the gateway's port; the machine's port and the socket do not matter."""
    await eventually(served)
    denied = {"selector": {"matchLabels": {"istio": "ingress"}}, "action": "DENY", "rules": [rule]}
    await mesh.try_out(istio("AuthorizationPolicy", "edge", denied) | {"apiVersion": "security.istio.io/v1"})
    assert (await call())[0] == status


async def test_curl_reaches_the_app_through_the_gateway(mesh):
    await eventually(served)
    url = f"http://app.example:{PORT}/curl"
    asked = ["curl", "-s", "--fail", "--resolve", f"app.example:{PORT}:127.0.0.1", url]
    done = await asyncio.to_thread(subprocess.run, asked, capture_output=True, timeout=30, check=False)
    assert done.returncode == 0, done
    assert json.loads(done.stdout)["path"] == "/curl"


async def test_a_proxy_header_from_the_network_is_not_accepted(mesh):
    """A PROXY header counts only on the Unix socket, which no workload of the mesh can reach."""
    address = mesh.pod("edge").addresses[0]
    assert (await mesh.get("caller", f"http://{address}/", headers={"host": "app.example"}))["status"] == 200
    lie = "PROXY TCP4 9.9.9.9 1.1.1.1 1 2\r\nGET / HTTP/1.1\r\nHost: app.example\r\nConnection: close\r\n\r\n"
    said = await mesh.tell("caller", "tcp", host=address, port=80, send=lie)
    assert "400" in str(said), said


async def test_ps_proxy_status_and_proxy_config_show_the_gateway_as_a_pod(mesh):
    pod = mesh.pod("edge")
    await mesh.synced()
    assert (pod.phase, pod.pid) == (PodPhase.READY, 0)
    assert pod.identity is not None and pod.identity.identity == "spiffe://cluster.local/ns/shop/sa/edge"
    for command in ("ps", "proxy-status", "proxy-config listener edge-0.shop"):
        done = await weft(f"weft {command} --mesh {mesh.engine.name}", mesh.directory)
        assert ("edge-0" in done or "0.0.0.0" in done) and "error" not in done, done
    assert await weft(f"weft logs edge --mesh {mesh.engine.name}", mesh.directory) == ""  # its proxy has logged nothing


async def test_a_gateways_own_network_has_open_low_ports_and_no_interception(mesh):
    pid = proxy(mesh, "edge-0")
    rules = subprocess.run(["nsenter", f"--net=/proc/{pid}/ns/net", "iptables-save"], capture_output=True, text=True)
    assert "REDIRECT" not in rules.stdout
    assert Path(f"/proc/{pid}").stat().st_uid == PROXY_UID


def proxy(mesh, name):
    return next(pod.proxy.pid for pod in mesh.engine.pods() if pod.plan.name == name)


async def test_replicas_share_a_port_and_one_that_ends_loses_no_request(mesh):
    await eventually(served)
    whole = text(edge({"port": 80, "hostPort": PORT}, replicas=2), gateway(80), route())
    mesh.write("edge.yaml", whole)
    await eventually(lambda: sum(pod.phase is PodPhase.READY for pod in mesh.pods("edge")) == 2)
    await mesh.engine.settled()

    async def requests(name):
        pod = next(pod for pod in mesh.engine.pods() if pod.plan.name == name)
        return sum((await pod.proxy.admin.stats(r"^http\.outbound_.*\.downstream_rq_total$")).values.values())

    async def both():
        await call()
        return [await requests(name) > 0 for name in ("edge-0", "edge-1")] == [True, True]

    await eventually(both)
    statuses, going = [], True

    async def load():
        while going:
            statuses.append((await call())[0])

    calls = [asyncio.create_task(load()) for _ in range(4)]
    mesh.write("edge.yaml", text(edge({"port": 80, "hostPort": PORT}), gateway(80), route()))
    await eventually(lambda: len(mesh.pods("edge")) == 1)
    going = False
    await asyncio.gather(*calls)
    assert statuses and set(statuses) == {200}


async def test_the_gateway_limits_streams_windows_and_header_time_of_outside_callers(mesh):
    await eventually(served)
    told = await settings_by_http2("127.0.0.1", PORT)
    assert (told[MAX_CONCURRENT_STREAMS], told[INITIAL_WINDOW_SIZE]) == (100, 64 << 10)
    reader, writer = await asyncio.open_connection("127.0.0.1", PORT)
    writer.write(b"GET / HTTP/1.1\r\nHost: app.example\r\nX-Never-Ending: ")
    async with asyncio.timeout(60):  # the limit is ten seconds
        assert (await reader.read()).startswith(b"HTTP/1.1 408")
    writer.close()


async def test_a_gateway_limits_its_connections_and_accepts_again_when_some_have_ended(monkeypatch):
    monkeypatch.setattr(bootstrap, "_MOST_CONNECTIONS", 10)
    port = free_port()

    def published(control):
        return files(control) | {"edge.yaml": text(edge({"port": 80, "hostPort": port}), gateway(80), route())}

    async with running_mesh(published, name=unique_name("full")) as mesh, contextlib.AsyncExitStack() as held:
        await eventually(lambda: served(port))
        for _ in range(12):
            with contextlib.suppress(ConnectionError):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                held.callback(writer.close)
                writer.write(b"GET / HTTP/1.1\r\nHost: app.example\r\n\r\n")
                await reader.readline()  # a response, or the end

        async def turned_away():
            return not await served(port)

        await eventually(turned_away)
        assert mesh.pod("edge").phase is PodPhase.READY
        await held.aclose()
        await eventually(lambda: served(port))


async def test_a_websocket_is_upgraded_through_the_gateway(mesh):
    await eventually(served)
    headers = {"host": "app.example"}
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(f"http://127.0.0.1:{PORT}/socket", headers=headers) as connection,
    ):
        for word in ("one", "two"):
            await connection.send_str(word)
            assert await connection.receive_str(timeout=20) == f"{mesh.pod('app').name}: {word}"


@pytest.mark.parametrize("kind", ["resets", "continuations"])
async def test_a_flood_of_frames_ends_its_connection_and_the_gateway_goes_on(mesh, kind):
    await eventually(served)
    connection = socket.create_connection(("127.0.0.1", PORT))
    connection.setblocking(False)
    before = await mesh.received("app", "/flood")
    assert await flood_by_http2(connection, kind, path="/flood", authority="app.example") < MOST
    assert await mesh.received("app", "/flood") - before < 1000
    await eventually(served)


async def test_a_flood_of_resets_ends_no_request_of_another_caller(mesh):
    """The gateway uses one connection to the app for all of them, and forwards the resets. `test_resets.py` has more
    of them."""
    await eventually(served)
    await mesh.tell("app", "script", path="/slow", forever={"delay": 5})

    async def ask_slowly():
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"http://127.0.0.1:{PORT}/slow", headers={"host": "app.example"}) as answer,
        ):
            return answer.status

    before = await mesh.received("app", "/slow")
    slow = [asyncio.create_task(ask_slowly()) for _ in range(5)]

    async def all_there():
        return await mesh.received("app", "/slow") - before == len(slow)

    await eventually(all_there)
    for _ in range(2):  # about 250 each
        connection = socket.create_connection(("127.0.0.1", PORT))
        connection.setblocking(False)
        assert await flood_by_http2(connection, "resets", path="/flood", authority="app.example") < MOST
    assert await asyncio.gather(*slow) == [200] * len(slow)


async def test_callers_that_stop_reading_do_not_block_other_callers(mesh):
    """The gateway uses one connection to the app for all of them."""
    await eventually(served)
    pod = next(pod for pod in mesh.engine.pods() if pod.plan.workload.name == "edge")
    received = []

    async def all_stopped():
        counts = (await pod.proxy.admin.stats(r"upstream_cx_rx_bytes_total$")).values
        received.append(sum(count for name, count in counts.items() if "||app." in name))
        await asyncio.sleep(0.2)
        return len(received) > 4 and received[-1] > 1_000_000 and len(set(received[-4:])) == 1

    async with contextlib.AsyncExitStack() as callers:

        async def begun(size):
            session = await callers.enter_async_context(aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)))
            url = f"http://127.0.0.1:{PORT}/bytes/{size}"
            return await callers.enter_async_context(session.get(url, headers={"host": "app.example"}))

        for _ in range(20):
            await begun(50_000_000)
        await eventually(all_stopped)
        assert len(await (await begun(1_000_000)).read()) == 1_000_000


async def test_a_gateway_whose_envoy_dies_comes_back_behind_the_same_port(mesh):
    await eventually(served)
    before = proxy(mesh, "edge-0")
    os.kill(before, signal.SIGKILL)
    await eventually(lambda: proxy(mesh, "edge-0") not in (0, before))
    await eventually(served)


async def test_a_port_that_is_published_later_opens_and_one_that_is_not_any_more_closes(mesh):
    await eventually(served)
    both = [{"port": 80, "hostPort": PORT}, {"port": 8081, "hostPort": OTHER}]
    mesh.write("edge.yaml", text(edge(*both), gateway(80, 8081), route()))
    await eventually(lambda: served(OTHER))
    mesh.write("edge.yaml", text(edge(*both[:1]), gateway(80, 8081), route()))

    async def closed():
        try:
            await call(OTHER)
        except aiohttp.ClientConnectorError:
            return True
        return False

    await eventually(closed)
    await eventually(served)


async def test_callers_over_ipv6_and_tls_are_served(mesh):
    authority = Authority()
    issued = authority.issue("app.example")
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "app-cert", "namespace": "shop"},
        "type": "kubernetes.io/tls",
        "stringData": {"tls.crt": issued.certificate.decode(), "tls.key": issued.key.decode()},
    }
    tls = {"mode": "SIMPLE", "credentialName": "app-cert"}
    servers = [{"port": {"number": 443, "name": "https", "protocol": "HTTPS"}, "hosts": ["*"], "tls": tls}]
    secured = istio("Gateway", "secured", {"selector": {"app": "secured"}, "servers": servers})
    routes = route()
    routes["metadata"]["name"], routes["spec"]["gateways"] = "secured", ["secured"]
    port = free_port()
    whole = edge({"port": 443, "hostPort": port, "address": "::1"}, name="secured")
    whole["metadata"]["labels"] = {"app": "secured"}
    mesh.write("secured.yaml", text(whole, secured, routes, secret))
    context = ssl.create_default_context(cadata=issued.root.decode())

    async def fetched():
        with contextlib.suppress(aiohttp.ClientError, OSError):
            async with aiohttp.ClientSession() as session:
                url, headers = f"https://[::1]:{port}/", {"host": "app.example"}
                async with session.get(url, headers=headers, ssl=context, server_hostname="app.example") as answer:
                    return await answer.json() if answer.status == 200 else None

    assert (await eventually(fetched))["host"] == "app.example"
    mesh.write("secured.yaml", None)
    await eventually(lambda: not mesh.pods("secured"))


async def test_a_taken_port_is_a_problem_with_its_line_and_the_rest_runs(mesh):
    await eventually(served)
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as taken:
        number = taken.getsockname()[1]
        mesh.write("second.yaml", text(edge({"port": 80, "hostPort": number}, name="second")))
        problem = await eventually(lambda: next((each for each in mesh.problems() if str(number) in each), None))
        assert "second.yaml:" in problem and "another program on this machine uses it" in problem
        assert "hint: use another hostPort" in problem
        assert (await call())[0] == 200
    await eventually(lambda: served(number))
    assert not [each for each in mesh.problems() if str(number) in each]
    mesh.write("second.yaml", None)
    await eventually(lambda: not mesh.pods("second"))


async def test_nothing_is_left_on_the_machine_when_the_mesh_has_ended():
    port = free_port()

    def alone(control):
        return files(control) | {"edge.yaml": text(edge({"port": 80, "hostPort": port}), gateway(80), route())}

    async with running_mesh(alone, name=unique_name("gone")) as mesh:
        await eventually(lambda: served(port))
        here, name = mesh.engine._run_directory.path, mesh.engine.name
        front = mesh.engine._pods._front_door.pid
        assert front
    assert not here.exists()
    assert not Path(f"/proc/{front}").exists()
    assert not list(Path("/run/netns").glob(f"weft-{name}*"))
    with pytest.raises(aiohttp.ClientConnectorError):
        await call(port)


async def test_the_edge_example_works_as_its_text_describes(tmp_path):
    example = Path(__file__).parents[2] / "examples/edge"
    port = free_port()

    def edited(_):
        found = {str(each.relative_to(example)): each.read_text() for each in example.rglob("*.*") if each.is_file()}
        assert "hostPort: 8080" in found["edge.yaml"]
        return found | {"edge.yaml": found["edge.yaml"].replace("hostPort: 8080", f"hostPort: {port}")}

    async def curl(path):
        asked = ["curl", "-s", "-H", "Host: shop.example", f"http://127.0.0.1:{port}{path}"]
        return (await asyncio.to_thread(subprocess.run, asked, capture_output=True, timeout=30, check=False)).stdout

    async with running_mesh(edited) as mesh:
        await eventually(lambda: curl("/"))
        assert (await curl("/")).startswith(b"welcome (web-0, /)")
        assert (await curl("/api/orders")).startswith(b"no orders yet (api-0, /orders)")
        assert len(mesh.pods("edge")) == 2
        said = await weft(f"weft status --mesh {mesh.engine.name}", mesh.directory)
        assert f"published on 127.0.0.1:{port}" in said, said
        assert not [each for each in mesh.problems() if "publish" in each]
