"""Protocols between two workloads through their proxies."""

from __future__ import annotations

import contextlib
import hashlib

import pytest

from e2e.objects import destination_rule, http_service, istio, service, text, workload
from eventually import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")

FIFTY_MEGABYTES = 50_000_000


def files(control):
    ports = (
        {"name": "http", "port": 80, "targetPort": 8080},
        {"name": "tcp-echo", "port": 9000},
        {"name": "tcp-closer", "port": 9001},
        {"name": "db", "port": 7306, "appProtocol": "mysql"},
        {"name": "grpc", "port": 9090},
        {"name": "http2", "port": 8082, "targetPort": 9090},
    )
    # The names of these ports declare no protocol.
    surprises = (
        {"name": "web", "port": 8081},
        {"name": "speaker", "port": 7307},
        {"name": "listener", "port": 9002},
        {"name": "calls", "port": 9091, "targetPort": 9090},
    )
    datagrams = {"name": "udp", "protocol": "UDP", "port": 5301, "targetPort": 5300}
    only_datagrams = {"selector": {"matchLabels": {"app": "datagrams"}}}
    strict = istio("PeerAuthentication", "strict", {**only_datagrams, "mtls": {"mode": "STRICT"}})
    return {
        "client.yaml": text(workload("client", control=control)),
        "server.yaml": text(
            workload(
                "server",
                control=control,
                serve="http=8080 echo=9000 closer=9001 greeting=7306 grpc=9090 http=8081 greeting=7307 echo=9002",
            ),
            service("server", *ports),
            service("surprise", *surprises, selector={"app": "server"}),
        ),
        "datagrams.yaml": text(
            workload("datagrams", control=control, serve="datagrams=5300 http=8080"),
            service("datagrams", datagrams),
            {**strict, "apiVersion": "security.istio.io/v1"},
        ),
        "grpcs.yaml": text(
            workload("grpcs", control=control, serve="grpc=9090", replicas=2),
            service("grpcs", {"name": "grpc", "port": 9090}),
        ),
        "headless.yaml": text(
            workload("headless", control=control, serve="http=8080 echo=9000", replicas=2),
            service(
                "headless", {"name": "http", "port": 8080}, {"name": "tcp", "port": 9000}, clusterIP="None"
            ),
        ),
        "other.yaml": text(workload("other", control=control, serve="http=8080"), http_service("other")),
    }  # fmt: skip


def pattern(size: int) -> str:
    chunk = bytes(range(256)) * 256
    digest = hashlib.sha256()
    for start in range(0, size, len(chunk)):
        digest.update(chunk[: size - start])
    return digest.hexdigest()


async def test_http_requests_arrive_as_they_were_sent(mesh):
    answer = await mesh.get(
        "client", "http://server/a%20b/c?d=e%26f", method="POST", body="words", headers={"X-Mine": "yes"}
    )
    body = answer["body"]
    assert (answer["status"], body["method"], body["path"], body["body"]) == (200, "POST", "/a%20b/c?d=e%26f", "words")
    assert ["x-mine", "yes"] in body["headers"]
    assert body["host"] == "server"
    assert answer["headers"]["server-says"] == mesh.pod("server").name


async def test_proxies_speak_http2_between_them(mesh):
    await mesh.requests("client", "http://server/", 20, parallel=4)
    cluster = r"^cluster\.outbound\|80\|\|server\."
    assert await mesh.stat("client", cluster + ".*upstream_cx_http2_total$") > 0
    assert await mesh.stat("client", cluster + ".*upstream_cx_http1_total$") == 0


async def test_http2_with_prior_knowledge_is_accepted_and_the_app_gets_its_declared_protocol(mesh):
    asked = ["curl", "-s", "--http2-prior-knowledge", "-w", " %{http_version} %{http_code}", "http://server/h2c"]
    answer = await mesh.tell("client", "run", argv=asked)
    assert answer["stdout"].endswith(" 2 200"), answer
    for target in ("server:8082", "surprise:9091"):  # declared HTTP/2, and undeclared
        assert await mesh.tell("client", "grpc_status", target=target, method="Unary") == {"OK": 1}


async def test_grpc_works_in_each_direction_and_both_at_once(mesh):
    answers = await mesh.tell("client", "grpc_calls", target="server:9090")
    assert answers == {
        "unary": f"hello from {mesh.pod('server').name}",
        "server_stream": list(range(100)),
        "client_stream": sum(range(100)),
        "both": [*(f"again {number}" for number in range(5)), "and that was all", "OK"],
        "failure": "FAILED_PRECONDITION: as asked",
    }


async def test_grpc_calls_on_one_connection_reach_every_replica(mesh):
    answers = await mesh.tell("client", "grpc_unary", target="grpcs:9090", count=40)
    assert set(answers) == {f"hello from {pod.name}" for pod in mesh.pods("grpcs")}


async def test_websockets_are_upgraded(mesh):
    name = mesh.pod("server").name
    replies = await mesh.tell("client", "websocket", url="http://server/socket", messages=["one", "two"])
    assert replies == [f"{name}: one", f"{name}: two", "cba"]


async def test_tcp_bytes_come_back(mesh):
    message = "0123456789" * 100_000
    answer = await mesh.tell("client", "tcp", host="server", port=9000, send=message, half_close=True)
    assert answer["received"] == message + "<end of file seen>"


async def test_a_client_that_half_closes_still_gets_the_response(mesh):
    answer = await mesh.tell("client", "tcp", host="server", port=9000, send="hello", half_close=True)
    assert (answer["received"], answer["error"]) == ("hello<end of file seen>", "")


async def test_a_server_that_closes_its_side_still_gets_the_rest(mesh):
    before = (await mesh.tell("server", "tcp_seen"))["bytes"].get("closer", 0)
    said = await mesh.tell("client", "tcp_after_their_close", host="server", port=9001, size=1_000_000)
    assert said == "that is all from me\n"

    async def all_there():
        return (await mesh.tell("server", "tcp_seen"))["bytes"].get("closer", 0) == before + 1_000_000

    await eventually(all_there)


async def test_large_bodies_go_up(mesh):
    answer = await mesh.tell("client", "upload", url="http://server/sum", size=FIFTY_MEGABYTES)
    assert answer == {"status": 200, "body": {"size": FIFTY_MEGABYTES, "sha256": pattern(FIFTY_MEGABYTES)}}


async def test_large_bodies_come_down(mesh):
    answer = await mesh.tell("client", "download", url=f"http://server/bytes/{FIFTY_MEGABYTES}")
    assert answer == {"status": 200, "size": FIFTY_MEGABYTES, "sha256": pattern(FIFTY_MEGABYTES)}


async def timeouts(mesh):
    """Connections on which protocol detection timed out, at both ends."""
    name = r"downstream_pre_cx_timeout$"
    return await mesh.stat("client", name), await mesh.stat("server", name)


async def test_a_declared_server_first_protocol_is_not_delayed(mesh):
    before = await timeouts(mesh)
    answer = await mesh.tell(
        "client", "tcp", host="server", port=7306, wait_first=True, send="hello\n", half_close=True
    )
    assert answer["first"] == f"greetings from {mesh.pod('server').name}\n"
    assert answer["received"] == "you said hello\n"
    assert await timeouts(mesh) == before


async def test_an_undeclared_server_first_protocol_works_after_the_detection_timeout(mesh):
    before = await timeouts(mesh)
    answer = await mesh.tell("client", "tcp", host="surprise", port=7307, wait_first=True, send="hi\n", half_close=True)
    assert answer["first"] == f"greetings from {mesh.pod('server').name}\n"
    assert answer["received"] == "you said hi\n"
    assert sum(await timeouts(mesh)) > sum(before)


async def test_an_undeclared_protocol_delayed_by_detection_is_a_problem_that_names_the_port(mesh):
    await mesh.tell("client", "tcp", host="surprise", port=7307, wait_first=True, send="hi\n", half_close=True)
    found = await eventually(lambda: [problem for problem in mesh.problems() if "7307" in problem])
    assert "warning" in found[0]
    assert "appProtocol" in found[0]


async def test_undeclared_http_is_detected_by_its_first_bytes(mesh):
    answer = await mesh.get("client", "http://surprise:8081/found-out")
    assert (answer["status"], answer["body"]["path"]) == (200, "/found-out")
    assert await mesh.stat("client", r"^cluster\.outbound\|8081\|\|surprise.*upstream_rq_total$") > 0


async def test_undeclared_client_first_tcp_is_not_delayed(mesh):
    before = await timeouts(mesh)
    # Its own side stays open until the response arrives: Envoy drops a connection whose end of file arrives during
    # protocol detection. A declared port has no detection, and no drops.
    answer = await mesh.tell("client", "tcp", host="surprise", port=9002, send="bytes, no HTTP\n", read=15)
    assert answer["received"] == "bytes, no HTTP\n"
    assert await timeouts(mesh) == before


async def test_tls_to_another_port_changes_nothing_for_undeclared_tcp(mesh):
    """The caller's proxy still signals TCP to the server's proxy, which does not parse it as HTTP."""
    elsewhere = {"port": {"number": 12345}, "tls": {"mode": "SIMPLE"}}
    await mesh.try_out(destination_rule("surprise", portLevelSettings=[elsewhere]))
    answer = await mesh.tell("client", "tcp", host="surprise", port=9002, send="bytes, no HTTP\n", read=15)
    assert answer["received"] == "bytes, no HTTP\n"


async def test_undeclared_tcp_that_is_dropped_for_its_half_close_becomes_a_problem(mesh):
    """A limit of Envoy: during protocol detection an end of file ends the connection. This is a race, so the test
    repeats until it occurs; it must be reported."""

    async def dropped():
        with contextlib.suppress(Exception):
            await mesh.tell("client", "tcp", host="surprise", port=9002, send="no newline", half_close=True)
        return [problem for problem in mesh.problems() if "were dropped" in problem]

    found = await eventually(dropped)
    assert "9002" in found[0]
    assert "appProtocol" in found[0]


async def test_undeclared_tcp_that_exceeds_the_detection_buffer_is_a_problem(mesh):
    with contextlib.suppress(Exception):
        await mesh.tell("client", "tcp", host="surprise", port=9002, send="x" * 100_000, read=1)
    found = await eventually(lambda: [problem for problem in mesh.problems() if "64 KiB" in problem])
    assert "9002" in found[0]


async def test_a_datagram_comes_back_past_the_proxies(mesh):
    """UDP passes though the port accepts only mutual TLS."""
    client, server = mesh.pod("client"), mesh.pod("datagrams")
    answer = await mesh.tell("client", "datagram", host="datagrams", port=5301, send="by its name")
    assert answer.startswith(server.name) and answer.endswith(": by its name")
    # A proxy would forward from its own address; this arrives from the client itself, in plaintext.
    answer = await mesh.tell("client", "datagram", host=server.addresses[0], port=5300, send="hello")
    assert answer == f"{server.name} from {client.addresses[0]}: hello"
    assert await mesh.stats(client.name, "5301") == {}, "no proxy has anything for the service's port"


async def test_a_thousand_tcp_connections_at_once(mesh):
    answer = await mesh.tell("client", "many", host="server", port=9000, count=1000)
    assert answer == {"open": 1000, "right": 1000, "again": 1000}


async def test_a_thousand_http_requests_at_once(mesh):
    await mesh.tell("server", "script", path="/together", forever={"delay": 2})
    answers = await mesh.requests("client", "http://server/together", 1000, parallel=1000, timeout=60)
    assert {answer["status"] for answer in answers} == {200}
    assert await mesh.received("server", "/together") == 1000


async def test_ipv6_carries_http_and_tcp(mesh):
    (address,) = (await mesh.tell("client", "resolve", name="server"))["v6"]
    answer = await mesh.get("client", f"http://[{address}]/six", headers={"host": "server"})
    assert (answer["status"], answer["body"]["path"]) == (200, "/six")
    answer = await mesh.tell("client", "tcp", host=address, port=9000, send="six", half_close=True)
    assert answer["received"] == "six<end of file seen>"
    answer = await mesh.tell("client", "tcp", host=address, port=7306, wait_first=True, half_close=True)
    assert answer["first"].startswith("greetings")


async def test_a_headless_service_is_its_pods(mesh):
    found = await mesh.tell("client", "resolve", name="headless")
    assert set(found["v4"]) == {pod.addresses[0] for pod in mesh.pods("headless")}
    for pod in mesh.pods("headless"):
        url = f"http://{pod.name}.headless:8080/"
        assert (await mesh.get("client", url))["body"]["pod"] == pod.name
        echoed = await mesh.tell("client", "tcp", host=pod.addresses[0], port=9000, send="x", half_close=True)
        assert echoed["received"] == "x<end of file seen>"


async def test_the_same_port_serves_different_services_by_host(mesh):
    assert (await mesh.get("client", "http://other/"))["body"]["pod"] == mesh.pod("other").name
    assert (await mesh.get("client", "http://server/"))["body"]["pod"] == mesh.pod("server").name
