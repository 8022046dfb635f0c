"""HTTP byte by byte, and faults on the wire: the mesh forwards valid messages, responds to faults as configured, and
continues."""

from __future__ import annotations

import asyncio
import base64
import json

import pytest

from e2e.objects import istio, service, text, to, virtual_service, workload
from eventually import eventually
from translate.raw_http2 import MOST, flood_by_http2
from weft.netns.namespace import socket_in

pytestmark = pytest.mark.asyncio(loop_scope="module")

FIFTY_MEGABYTES = 50_000_000
TWENTY_MEGABYTES = 20_000_000


def files(control):
    ports = (
        {"name": "http", "port": 80, "targetPort": 8080},
        {"name": "http-whole", "port": 81, "targetPort": 8081},
        {"name": "grpc", "port": 9090},
    )
    web = [{"name": "grpc-web", "port": 9090}]
    edge = {
        "apiVersion": "weft.dev/v1alpha1",
        "kind": "Workload",
        "metadata": {"name": "edge", "namespace": "shop", "labels": {"app": "edge"}},
        "spec": {"gateway": {"publish": []}},
    }
    at_edge = {"port": {"number": 9090, "name": "browsers", "protocol": "GRPC-WEB"}, "hosts": ["*"]}
    to_grpc = {"route": [{"destination": {"host": "server", "port": {"number": 9090}}}]}
    return {
        "client.yaml": text(workload("client", control=control)),
        "bare.yaml": text(
            workload("bare", control=control, annotations={"sidecar.istio.io/inject": "false"}),
            workload("web", control=control, serve="grpc=9090"),
            service("web", *web),
        ),
        "edge.yaml": text(
            edge,
            istio("Gateway", "edge", {"selector": {"app": "edge"}, "servers": [at_edge]}),
            istio("VirtualService", "browsers", {"hosts": ["*"], "gateways": ["edge"], "http": [to_grpc]}),
        ),
        "server.yaml": text(
            workload("server", control=control, serve="raw=8080 http=8081 grpc=9090"), service("server", *ports)
        ),
    }


def request(*lines, body=""):
    return "\r\n".join(lines) + "\r\n\r\n" + body


async def said(mesh, *lines, body="", **arguments):
    sent = request(*lines, "connection: close", body=body)
    return (await mesh.tell("client", "raw", host="server", port=80, send=sent, **arguments))["received"]


def content(answer):
    return json.loads(answer.partition("\r\n\r\n")[2])


async def test_trailers_arrive_in_both_directions(mesh):
    body = "4\r\nbody\r\n0\r\nx-sum: 42\r\n\r\n"
    answer = await said(
        mesh, "POST / HTTP/1.1", "host: server", "transfer-encoding: chunked", "trailer: x-sum", body=body
    )
    assert content(answer)["trailers"] == {"x-sum": "42"}
    answer = await said(mesh, "GET /trailers HTTP/1.1", "host: server", "te: trailers")
    assert answer.endswith("0\r\nx-sum: 42\r\n\r\n")


async def test_a_body_is_held_back_until_the_server_wants_it(mesh):
    head = ("POST /wanted HTTP/1.1", "host: server", "content-length: 5", "expect: 100-continue", "connection: close")
    answer = await mesh.tell("client", "raw", host="server", port=80, send=request(*head), then="words")
    first, _, rest = answer["received"].partition("\r\n\r\n")
    assert first.startswith("HTTP/1.1 100")
    assert '"body": "words"' in rest


async def test_a_server_may_reject_a_request_before_its_body(mesh):
    head = ("POST /refuse HTTP/1.1", "host: server", "content-length: 5", "expect: 100-continue", "connection: close")
    answer = await mesh.tell("client", "raw", host="server", port=80, send=request(*head))
    assert answer["received"].startswith("HTTP/1.1 417")


async def test_an_http_1_0_request_gets_a_response(mesh):
    answer = await mesh.tell("client", "raw", host="server", port=80, send=request("GET /old HTTP/1.0", "host: server"))
    assert answer["received"].startswith("HTTP/1.0 200") or answer["received"].startswith("HTTP/1.1 200")
    assert '"path": "/old"' in answer["received"]


async def test_http_1_0_with_keep_alive_keeps_its_connection(mesh):
    kept = ("host: server", "connection: keep-alive")
    both = request("GET /first HTTP/1.0", *kept) + request("GET /second HTTP/1.0", *kept)
    answer = await mesh.tell("client", "raw", host="server", port=80, send=both, until='"path": "/second"')
    assert answer["received"].count("HTTP/1.0 200") == 2, answer
    assert answer["received"].lower().count("connection: keep-alive") == 2, answer


async def test_http_1_0_without_a_host_is_for_the_workload_and_refused_by_a_callers_proxy(mesh):
    """Only the Host header distinguishes services that share a port."""
    send = request("GET /hostless HTTP/1.0")
    address = mesh.pod("server").addresses[0]
    inside = await mesh.tell("bare", "raw", host=address, port=8080, send=send)
    assert '"host": "localhost"' in inside["received"], inside
    outside = await mesh.tell("client", "raw", host="server", port=80, send=send)
    assert " 400 " in outside["received"].partition("\r\n")[0], outside


@pytest.mark.parametrize("protocol", ["websocket", "SPDY/3.1", "tcp"])
async def test_upgrades_carry_bytes_both_ways(mesh, protocol):
    head = ("GET /upgrade HTTP/1.1", "host: server", "connection: upgrade", f"upgrade: {protocol}")
    answer = await mesh.tell("client", "raw", host="server", port=80, send=request(*head), then="abc", until="cba")
    assert answer["received"].startswith("HTTP/1.1 101"), answer
    assert answer["received"].endswith("cba"), answer


@pytest.mark.parametrize("protocol", ["websocket", "SPDY/3.1", "tcp"])
async def test_a_request_to_upgrade_keeps_its_method(mesh, protocol):
    """Container engines and Kubernetes send POST."""
    head = ("POST /upgrade HTTP/1.1", "host: server", "connection: upgrade", f"upgrade: {protocol}")
    answer = await mesh.tell("client", "raw", host="server", port=80, send=request(*head), then="abc", until="cba")
    assert answer["received"].startswith("HTTP/1.1 101"), answer
    assert "x-method: POST" in answer["received"], answer


@pytest.mark.parametrize(("protocol", "status"), [("websocket", 200), ("SPDY/3.1", 203), ("tcp", 203)])
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_an_application_that_ignores_a_request_to_upgrade_switches_no_protocol(mesh, method, protocol, status):
    """HTTP/2 cannot distinguish 200 from a switch of protocols (`translate/upgrades.py`)."""
    head = (f"{method} /plain HTTP/1.1", "host: server", "connection: upgrade", f"upgrade: {protocol}")
    answer = await mesh.tell("client", "raw", host="server", port=80, send=request(*head), until="\r\n\r\n")
    assert answer["received"].startswith(f"HTTP/1.1 {status} "), answer
    assert "upgrade: " not in answer["received"].partition("\r\n\r\n")[0], answer


async def test_policies_see_the_method_of_a_request_to_upgrade(mesh):
    denied = {"rules": [{"to": [{"operation": {"methods": ["POST"], "paths": ["/upgrade"]}}]}], "action": "DENY"}
    await mesh.try_out(istio("AuthorizationPolicy", "no-post", denied) | {"apiVersion": "security.istio.io/v1"})

    async def status(method):
        head = (f"{method} /upgrade HTTP/1.1", "host: server", "connection: upgrade", "upgrade: tcp")
        answer = await mesh.tell("client", "raw", host="server", port=80, send=request(*head), until="\r\n\r\n")
        return answer["received"].split(" ")[1]

    async def denied_on_every_connection():
        return await status("POST") == "403"

    await eventually(denied_on_every_connection)
    assert await status("GET") == "101"


async def test_an_unknown_upgrade_is_rejected_and_h2c_is_ignored(mesh):
    unknown = await said(mesh, "GET /upgrade HTTP/1.1", "host: server", "connection: upgrade", "upgrade: else")
    assert unknown.startswith("HTTP/1.1 403"), unknown
    offered = ("connection: upgrade, http2-settings", "upgrade: h2c", "http2-settings: AAMAAABkAAQAAP__")
    head = request("GET /plain HTTP/1.1", "host: server", *offered)
    answer = await mesh.tell("client", "raw", host="server", port=80, send=head, until="/plain")
    assert answer["received"].startswith("HTTP/1.1 200"), answer


async def test_a_connect_is_refused_where_http_is_declared(mesh):
    answer = await said(mesh, "CONNECT example.com:443 HTTP/1.1", "host: example.com:443")
    assert answer.startswith("HTTP/1.1 404"), answer


async def test_very_large_chunked_bodies(mesh):
    answer = await mesh.tell("client", "upload", url="http://server:81/sum", size=FIFTY_MEGABYTES)
    assert (answer["status"], answer["body"]["size"]) == (200, FIFTY_MEGABYTES)


async def test_grpc_is_retried_by_status_if_configured(mesh):
    retries = {"attempts": 2, "retryOn": "unavailable,resource-exhausted"}
    await mesh.try_out(virtual_service("server", {"retries": retries, "route": [to("server")]}))
    for codes, status, tries in (
        (["UNAVAILABLE", "RESOURCE_EXHAUSTED"], "OK", 3),
        (["UNAVAILABLE"] * 3, "UNAVAILABLE", 3),
        (["INTERNAL"], "INTERNAL", 1),
    ):
        await mesh.tell("server", "script_grpc", codes=codes)
        before = await mesh.tell("server", "grpc_received")
        assert await mesh.tell("client", "grpc_status", target="server:9090", method="Scripted") == {status: 1}
        assert await mesh.tell("server", "grpc_received") - before == tries


async def test_a_grpc_error_response_is_not_retried_by_default(mesh):
    await mesh.tell("server", "script_grpc", codes=["UNAVAILABLE"])
    assert await mesh.tell("client", "grpc_status", target="server:9090", method="Scripted") == {"UNAVAILABLE": 1}


@pytest.mark.parametrize(
    ("who", "whom"), [("client", "web"), ("bare", "web"), ("bare", "edge")], ids=["caller", "workload", "gateway"]
)
async def test_grpc_web_becomes_grpc(mesh, who, whom):
    """The caller's proxy converts it, or the workload's if the caller has none; also a gateway whose server is
    configured for it, for backends that accept only gRPC."""
    body = base64.b64encode(b"\0\0\0\0\5hello").decode()
    where = whom if who == "client" else mesh.pod(whom).addresses[0]
    answer = await mesh.get(
        who,
        f"http://{where}:9090/e2e.Echo/Unary",
        method="POST",
        body=body,
        headers={"content-type": "application/grpc-web-text", "accept": "application/grpc-web-text"},
    )
    assert answer["status"] == 200, answer
    said = b"".join(
        base64.b64decode(part + "==") for part in answer["body"].replace("=", "= ").split() if part.strip("= ")
    )
    assert b"hello from " in said
    assert b"grpc-status:0" in said.replace(b" ", b"")


# Faults on the wire.


async def test_an_upstream_reset_is_a_503_and_the_next_request_succeeds(mesh):
    assert (await mesh.get("client", "http://server/reset", method="POST"))["status"] == 503
    assert (await mesh.get("client", "http://server/after"))["status"] == 200


async def test_a_truncated_response_is_an_error_and_not_a_short_response(mesh):
    answer = await mesh.get("client", "http://server/too-short")
    assert answer["status"] == 0, answer  # the response is incomplete
    assert (await mesh.get("client", "http://server/after"))["status"] == 200


async def test_a_response_longer_than_its_content_length_smuggles_nothing(mesh):
    for _ in range(3):
        answer = await mesh.get("client", "http://server/too-long")
        assert (answer["status"], answer["body"]) == (200, "four")
        after = await mesh.get("client", "http://server/after")
        assert (after["status"], after["body"]["path"]) == (200, "/after")
        assert "x-smuggled" not in after["headers"]


async def test_an_invalid_upstream_response_is_a_502(mesh):
    assert (await mesh.get("client", "http://server/nonsense", method="POST"))["status"] in (502, 503)
    assert (await mesh.get("client", "http://server/after"))["status"] == 200


async def test_a_response_that_is_invalid_in_http2_ends_only_its_own_stream(mesh):
    """All requests share one connection between the proxies."""
    before = (await mesh.tell("server", "raw_received")).get("/unread", 0)
    waiting = asyncio.create_task(mesh.requests("client", "http://server/unread", 8, method="POST"))

    async def arrived():
        return (await mesh.tell("server", "raw_received")).get("/unread", 0) == before + 8

    await eventually(arrived)
    refused = await mesh.requests("client", "http://server/forbidden", 8, method="POST", keep_alive=False)
    await mesh.tell("server", "read_on")
    assert {each["status"] for each in await waiting} == {200}
    assert {each["status"] for each in refused} == {502}


async def test_a_request_with_a_wrong_length_does_not_affect_other_requests(mesh):
    short = request("POST /short HTTP/1.1", "host: server", "content-length: 100", body="only this")
    answer = await mesh.tell("client", "raw", host="server", port=80, send=short, timeout=1)
    assert answer["received"] == ""
    both = request(
        "POST /both HTTP/1.1", "host: server", "content-length: 3", "transfer-encoding: chunked", body="0\r\n\r\n"
    )
    answer = await mesh.tell("client", "raw", host="server", port=80, send=both)
    assert " 400 " in answer["received"].partition("\r\n")[0], answer
    assert (await mesh.get("client", "http://server/after"))["status"] == 200


UNCLEAR = {
    "two lengths": ("content-length: 3", "content-length: 4"),
    "one length twice": ("content-length: 3", "content-length: 3"),
    "a list of lengths": ("content-length: 3, 3",),
    "a signed length": ("content-length: +3",),
    "an unknown coding": ("transfer-encoding: xchunked",),
    "two codings": ("transfer-encoding: chunked", "transfer-encoding: identity"),
    "a space before the colon": ("transfer-encoding : chunked",),
    "a coding after a length": ("content-length: 3", "transfer-encoding: chunked"),
    "a null": ("content-length: 3", "x-a: b\0c"),
}


@pytest.mark.parametrize("way", ["client", "bare"])
@pytest.mark.parametrize("lines", UNCLEAR.values(), ids=UNCLEAR)
async def test_a_request_of_ambiguous_length_does_not_reach_the_application(mesh, way, lines):
    """The body for one side could be another request for the other (CVE-2024-23326). The caller's proxy rejects it,
    or the workload's if the caller has none."""
    where = (
        {"host": "server", "port": 80} if way == "client" else {"host": mesh.pod("server").addresses[0], "port": 8080}
    )
    before = (await mesh.tell("server", "raw_received")).get("/unclear", 0)
    sent = request("POST /unclear HTTP/1.1", "host: server", *lines, body="3\r\nabc\r\n0\r\n\r\n")
    answer = (await mesh.tell(way, "raw", send=sent, **where))["received"]
    assert answer.split(" ")[1] in ("400", "501"), answer
    assert (await mesh.tell("server", "raw_received")).get("/unclear", 0) == before


@pytest.mark.parametrize("kind", ["resets", "continuations"])
async def test_a_flood_of_http2_frames_ends_only_its_own_connection(mesh, kind):
    bare = next(each for each in mesh.engine.pods() if each.plan.workload.name == "bare")
    connection = socket_in(bare.namespace)
    await asyncio.get_running_loop().sock_connect(connection, (mesh.pod("server").addresses[0], 8080))
    before = (await mesh.tell("server", "raw_received")).get("/flood", 0)
    assert await flood_by_http2(connection, kind, path="/flood", authority="server") < MOST
    assert (await mesh.tell("server", "raw_received")).get("/flood", 0) - before < 1000
    assert (await mesh.get("client", "http://server/after"))["status"] == 200


async def test_a_response_sent_before_the_request_body_arrives_and_ends_only_its_own_connection(mesh):
    for _ in range(3):
        head = request("POST /early HTTP/1.1", "host: server", "content-length: 1000000")
        answer = await mesh.tell("client", "raw", host="server", port=80, send=head, until="too much")
        assert answer["received"].startswith("HTTP/1.1 413"), answer
    assert (await mesh.get("client", "http://server/after", method="POST"))["status"] == 200


async def test_a_response_reset_half_way_is_an_error_and_is_not_retried(mesh):
    before = (await mesh.tell("server", "raw_received")).get("/cut", 0)
    answer = await mesh.get("client", "http://server/cut")
    assert answer["status"] == 0, answer  # the response is incomplete
    assert (await mesh.tell("server", "raw_received"))["/cut"] == before + 1
    assert (await mesh.get("client", "http://server/after"))["status"] == 200


async def test_a_slow_reader_gets_everything_and_blocks_no_other_request(mesh):
    slow = mesh.tell("client", "slow_download", url=f"http://server:81/bytes/{FIFTY_MEGABYTES}", pause=0.05, pieces=30)
    task = asyncio.create_task(slow)
    answers = await mesh.requests("client", "http://server:81/beside", 50)
    assert {each["status"] for each in answers} == {200}
    assert await task == {"status": 200, "size": FIFTY_MEGABYTES}


async def test_stalled_readers_block_no_other_request(mesh):
    """All requests share one connection between the proxies."""
    await mesh.tell("client", "stall", url=f"http://server:81/bytes/{FIFTY_MEGABYTES}", count=5)
    await quiet(mesh, "client", "rx")
    beside = await mesh.tell("client", "download", url="http://server:81/bytes/1000000")
    assert (beside["status"], beside["size"]) == (200, 1_000_000)
    assert await mesh.tell("client", "go_on") == [FIFTY_MEGABYTES] * 5


async def test_a_server_that_has_stopped_reading_some_requests_reads_others(mesh):
    uploads = [
        asyncio.create_task(mesh.tell("client", "upload", url="http://server/unread", size=TWENTY_MEGABYTES))
        for _ in range(5)
    ]
    await quiet(mesh, "client", "tx")
    beside = await mesh.tell("client", "upload", url="http://server/beside", size=1_000_000)
    assert (beside["status"], beside["body"]["size"]) == (200, 1_000_000)
    await mesh.tell("server", "read_on")
    assert {answer["body"]["size"] for answer in await asyncio.gather(*uploads)} == {TWENTY_MEGABYTES}


async def quiet(mesh, workload, direction):
    """Wait until no more bytes flow."""
    pattern, seen = rf"^cluster\.outbound\|8[01]\|\|server.*upstream_cx_{direction}_bytes_total$", []

    async def unchanged():
        seen.append(await mesh.stat(workload, pattern))
        await asyncio.sleep(0.2)
        return len(seen) > 4 and seen[-1] > 1_000_000 and len(set(seen[-4:])) == 1

    await eventually(unchanged, limit=60)
