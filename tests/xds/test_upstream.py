"""The agent's stream to a control plane that is down, starts again, or sends malformed messages."""

import asyncio
import contextlib

import grpc.aio
import pytest

from node_rig import Control
from relay_rig import until
from weft.xds import frames
from weft.xds.copy import Copy
from weft.xds.node_server import NodeServer
from weft.xds.server import OPTIONS
from weft.xds.types import CLUSTER
from weft.xds.upstream import ENDED, ControlPlaneStream, Line, NoLine


async def anybody(_peer, _token):
    return None


@contextlib.asynccontextmanager
async def serving(path, *handlers):
    server = grpc.aio.server(options=OPTIONS)
    server.add_generic_rpc_handlers(handlers)
    server.add_insecure_port(f"unix:{path}")
    await server.start()
    try:
        yield
    finally:
        await server.stop(None)


@contextlib.asynccontextmanager
async def calling(line, *pods):
    copy = Copy()
    upstream = ControlPlaneStream(copy, "node-1", line)
    for pod in pods:
        copy.add(pod)
    running = asyncio.create_task(upstream.run())
    try:
        yield upstream, copy
    finally:
        running.cancel()
        await asyncio.wait({running})


def to(path):
    async def line():
        return Line(target=f"unix:{path}")

    return line


async def test_reconnects_until_the_control_plane_responds_and_when_the_stream_breaks(tmp_path, caplog):
    path = tmp_path / "control.sock"
    control = Control({"web-0": "web"})
    control.put("web", CLUSTER, a="1")
    nodes = NodeServer(control.snapshots, control)
    async with calling(to(path), "web-0") as (upstream, copy):
        await until(lambda: upstream.calls >= 2 and upstream.trouble)
        async with serving(path, nodes.handlers(anybody)):
            await until(lambda: copy.placements == {"web-0": "web"})
            assert upstream.connected and upstream.trouble == ""
            copy.add("web-1")
            control.placed["web-1"] = "web"
            await until(lambda: copy.placements == {"web-0": "web", "web-1": "web"})
        await until(lambda: not upstream.connected)
        assert copy.snapshots.resources("web", CLUSTER)["a"].version == "1"
        control.put("web", CLUSTER, a="2")
        async with serving(path, nodes.handlers(anybody)):
            await until(lambda: copy.snapshots.resources("web", CLUSTER)["a"].version == "2")
    said = [record.getMessage() for record in caplog.records if "proxies keep their config" in record.getMessage()]
    assert 1 <= len(said) <= 3  # once per reason, not per attempt


async def test_waits_for_a_certificate_and_reads_it_before_every_connection(tmp_path):
    asked = 0

    async def line():
        nonlocal asked
        asked += 1
        raise NoLine("no certificate yet")

    async with calling(line) as (upstream, _):
        await until(lambda: asked >= 2)
        assert upstream.trouble == "no certificate yet" and upstream.calls == 0


async def test_checks_again_soon_however_long_it_had_no_certificate(monkeypatch):
    monkeypatch.setattr("weft.xds.upstream._NO_LINE_DELAY", 0.01)
    asked = 0

    async def line():
        nonlocal asked
        asked += 1
        raise NoLine("no certificate yet")

    async with calling(line):
        await until(lambda: asked >= 20)  # with growing delays this would take minutes


async def test_does_not_connect_over_tcp_without_a_root_certificate():
    async def line():
        return Line(target="127.0.0.1:1")

    async with calling(line) as (upstream, _):
        await until(lambda: "needs a root certificate" in upstream.trouble)


@pytest.mark.parametrize(
    "payload",
    [b"\xc1", frames.encode(frames.Update(1, (frames.GroupUpdate("web", 1, {CLUSTER: [frames.Entry("a", "1")]}),)))],
    ids=["garbage", "a reference to nothing"],
)
async def test_the_agent_reconnects_after_a_malformed_message(tmp_path, payload):
    async def nonsense(_requests, context):
        await context.read()
        await context.write(payload)
        await context.read()

    handler = grpc.method_handlers_generic_handler(
        frames.SERVICE, {frames.METHOD: grpc.stream_stream_rpc_method_handler(nonsense)}
    )
    async with serving(tmp_path / "bad.sock", handler), calling(to(tmp_path / "bad.sock"), "web-0") as (upstream, copy):
        await until(lambda: upstream.calls >= 3)
        assert upstream.trouble and copy.snapshots.groups() == []


async def test_the_reason_of_a_rejection_is_reported_even_during_a_write(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr("weft.xds.upstream._MOST_DELAY", 0.1)
    speaking = 0

    async def nobody(_requests, context):
        await context.abort(grpc.StatusCode.UNAUTHENTICATED, "show a certificate")

    async def speak_on(upstream, call, _taken):
        """Write all the time, as an agent does whose pods are added one after the other."""
        nonlocal speaking
        while True:
            await upstream._send(call, b"x")
            speaking += 1
            await asyncio.sleep(0)

    monkeypatch.setattr(ControlPlaneStream, "_speak", speak_on)
    handler = grpc.stream_stream_rpc_method_handler(nobody)
    path = tmp_path / "control.sock"
    handlers = grpc.method_handlers_generic_handler(frames.SERVICE, {frames.METHOD: handler})
    async with serving(path, handlers), calling(to(path)) as (upstream, _):
        await until(lambda: upstream.calls >= 20 and upstream.trouble not in ("", ENDED))
        assert upstream.trouble == "show a certificate (UNAUTHENTICATED)"
    assert speaking
    # Only weft's own records: under load gRPC's poller may log a BlockingIOError of its own, through asyncio.
    own = [record for record in caplog.records if record.name.startswith("weft.")]
    said = {record.getMessage().removeprefix("no stream to the control plane, ") for record in own}
    reasons = {f"proxies keep their config: {why}" for why in (ENDED, "show a certificate (UNAUTHENTICATED)")}
    assert said <= reasons


async def test_reports_are_gathered_and_repeat_nothing(tmp_path):
    heard = []

    async def listen(_requests, context):
        while isinstance(payload := await context.read(), bytes):
            heard.append(frames.decode_from_agent(payload))
            if len(heard) == 1:
                group = frames.GroupUpdate("web", 5, {CLUSTER: [frames.Entry("a", "1", b"a")]}, fresh=True)
                await context.write(frames.encode(frames.Update(1, (group,), {"web-0": "web"}, resumed=True)))

    handler = grpc.method_handlers_generic_handler(
        frames.SERVICE, {frames.METHOD: grpc.stream_stream_rpc_method_handler(listen)}
    )
    async with serving(tmp_path / "s.sock", handler), calling(to(tmp_path / "s.sock"), "web-0") as (_, copy):
        await until(lambda: copy.placements)
        taken = copy.snapshots.resources("web", CLUSTER).values()
        copy.snapshots.accept("web", CLUSTER, taken)
        await until(lambda: any(isinstance(frame, frames.ReportFrame) for frame in heard))
        copy.changed()
        copy.add("web-1")
        await until(lambda: isinstance(heard[-1], frames.PodsFrame))
        assert [type(frame).__name__ for frame in heard] == ["Hello", "TakenFrame", "ReportFrame", "PodsFrame"]
        assert heard[2].acceptances == (frames.Acceptance("web", CLUSTER, None, 5),)


def test_the_repr_of_a_line_has_no_credentials():
    line = Line(target="control:15012", roots="r", chain="c", key=b"secret key", token="secret token")
    assert "secret" not in f"{line!r} {line} {[line]}"


async def test_a_report_of_a_large_mesh_is_accepted(tmp_path):
    """As one message it would be longer than the control plane accepts, and the stream would be ended at every
    attempt."""
    path = tmp_path / "control.sock"
    control = Control({"web-0": "web"})
    control.put("web", CLUSTER, a="1")
    nodes = NodeServer(control.snapshots, control)
    versions = {f"{number:06}{'x' * 4_000}": "1" for number in range(5_000)}
    async with calling(to(path), "web-0") as (upstream, copy), serving(path, nodes.handlers(anybody)):
        await until(lambda: copy.placements)
        report, once = (
            copy.report,
            [frames.Acceptance("web", CLUSTER, versions), frames.Acceptance("web", CLUSTER, {"a": "1"})],
        )

        def long(streams):
            found, copy.report = frames.ReportFrame(tuple(once)), report
            return found

        copy.report, calls = long, upstream.calls
        copy.changed()
        await until(lambda: control.snapshots.accepted("web", CLUSTER, "a"))
        assert upstream.bytes_sent > 16 << 20
        assert (upstream.calls, upstream.trouble) == (calls, "")
