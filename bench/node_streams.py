"""Simulates the agents of many nodes in one process. Each agent gets a certificate with the token of its pod and
opens a stream to the control plane over mTLS, with reconnects. It receives the updates for the pods of its node
and reports that the proxies have accepted them.

Commands arrive as JSON lines on standard input, and each command gets one JSON line as its reply. The process counts
the bytes received since the last command. It does not decode the bodies of resources: decoding a copy of the config
for each agent is not work of the control plane.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

import grpc
import grpc.aio
import msgspec

from bench.kube_objects import AGENT, ROOT, Agent
from weft.base.backoff import Backoff
from weft.ca.client import CertificateClient
from weft.model.identity import Identity
from weft.node.key import Key
from weft.xds import frames
from weft.xds.types import CLUSTER, ENDPOINT, LISTENER, ROUTE

_PATH = f"/{frames.SERVICE}/{frames.METHOD}"
_ORDER_SECONDS = 240.0


class _Group(msgspec.Struct, frozen=True, array_like=True):
    """The fields of `frames.GroupUpdate` that a report needs."""

    group: str
    revision: int
    upserts: dict[str, msgspec.Raw] = {}
    removals: dict[str, msgspec.Raw] = {}
    fresh: bool = False

    @property
    def types(self) -> tuple[str, ...]:
        """Return the type URLs that the proxies of this group report as accepted. A fresh group may be sent as the
        difference from another group, which leaves out resources, so a fresh group reports all four types."""
        return (CLUSTER, ENDPOINT, LISTENER, ROUTE) if self.fresh else tuple(self.upserts)


class _Update(msgspec.Struct, frozen=True, array_like=True):
    nonce: int
    groups: tuple[_Group, ...] = ()
    placements: dict[str, str] = {}


_decoder = msgspec.msgpack.Decoder(_Update)


class Line(msgspec.Struct, frozen=True):
    target: str
    roots: str
    server_name: str


class _Certified(msgspec.Struct, frozen=True):
    agent: Agent
    key: bytes
    chain: str


class Streams:
    def __init__(self) -> None:
        self._bytes, self._heard, self._last, self._calls = 0, set[str](), 0.0, 0
        self._trouble = ""  # why an agent had to reconnect
        self._unplaced: set[str] = set()  # UIDs of pods for which no group was received yet
        self._certified: list[_Certified] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def certify(self, line: Line, agents: list[Agent]) -> dict[str, Any]:
        client = CertificateClient(line.target, line.roots, server_name=line.server_name)
        try:
            for agent in agents:
                key = Key()
                issued = await client.create(agent.token, key.request(Identity("cluster.local", ROOT, AGENT)))
                self._certified.append(_Certified(agent, key.secret_pem(), "".join(issued.chain)))
        finally:
            await client.close()
        return {"certificates": len(self._certified)}

    def connect(self, line: Line) -> dict[str, Any]:
        self._unplaced = {pod for each in self._certified for pod in each.agent.pods}
        self._tasks = [asyncio.create_task(self._run(line, each)) for each in self._certified]
        return {}

    async def settle(self, streams: int, quiet: float) -> dict[str, Any]:
        """Wait until `streams` streams have received something, every pod has a group, and nothing arrived for
        `quiet` seconds. Return the counts since the last call, or an error."""
        until = time.monotonic() + _ORDER_SECONDS
        while len(self._heard) < streams or self._unplaced or time.monotonic() - self._last < quiet:
            if time.monotonic() > until:
                reached = f"{len(self._heard)} of {streams} streams received an update"
                missing = f"{len(self._unplaced)} pods have no group"
                spent = f"after {_ORDER_SECONDS:.0f} s and {self._calls} connection attempts"
                return {"error": f"{reached}, {missing}, {spent}. {self._trouble}"}
            await asyncio.sleep(0.02)
        answer = {
            "bytes": self._bytes,
            "streams": len(self._heard),
            "last": self._last,
            "calls": self._calls,
            "trouble": self._trouble,
        }
        self._bytes, self._heard, self._calls, self._trouble = 0, set(), 0, ""
        return answer

    async def _run(self, line: Line, certified: _Certified) -> None:
        backoff = Backoff(first=0.1, most=10.0)
        while True:
            self._calls += 1
            try:
                await self._call(line, certified)
            except grpc.aio.AioRpcError as error:
                self._trouble = f"{certified.agent.node}: {error.details()} ({error.code().name})"
            await asyncio.sleep(backoff.next())

    async def _call(self, line: Line, certified: _Certified) -> None:
        agent = certified.agent
        async with _channel(line, certified) as channel:
            call: Any = channel.stream_stream(_PATH)(metadata=(("authorization", f"Bearer {agent.token}"),))
            await call.write(frames.encode(frames.Hello(agent.node, tuple(agent.pods), builds=True)))
            while isinstance(payload := await call.read(), bytes):
                self._bytes += len(payload)
                self._heard.add(agent.node)
                self._last = time.monotonic()
                update = _decoder.decode(payload)
                self._unplaced.difference_update(update.placements)
                await call.write(frames.encode(frames.TakenFrame(update.nonce)))
                if update.groups:
                    await call.write(frames.encode(_report(update)))
            self._trouble = f"the control plane closed the stream of {agent.node}: {await call.details()}"


def _report(update: _Update) -> frames.ReportFrame:
    """Return a report that one proxy of each group in the update has accepted all its resources."""
    return frames.ReportFrame(
        tuple(
            frames.Acceptance(each.group, type_url, None, each.revision)
            for each in update.groups
            for type_url in each.types
        ),
        (),
        tuple(
            # A group's name is a hexadecimal number. The proxy's number is derived from it, so that it is the same in
            # every report.
            frames.ProxyFrame(
                int(each.group, 16) % 2**53, each.group, each.group, dict.fromkeys(each.types, each.revision)
            )
            for each in update.groups
        ),
    )


def _channel(line: Line, certified: _Certified) -> grpc.aio.Channel:
    credentials = grpc.ssl_channel_credentials(line.roots.encode(), certified.key, certified.chain.encode())
    options = (
        ("grpc.max_receive_message_length", frames.UPDATE_BYTES),
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.ssl_target_name_override", line.server_name),
    )
    return grpc.aio.secure_channel(line.target, credentials, options=options)


async def main() -> None:
    streams = Streams()
    loop = asyncio.get_running_loop()
    while text := await loop.run_in_executor(None, sys.stdin.readline):
        order = json.loads(text)
        try:
            match order["do"]:
                case "certify":
                    agents = msgspec.convert(order["agents"], list[Agent])
                    answer = await streams.certify(msgspec.convert(order["line"], Line), agents)
                case "connect":
                    answer = streams.connect(msgspec.convert(order["line"], Line))
                case _:
                    answer = await streams.settle(order["streams"], order["quiet"])
        except Exception as error:  # noqa: BLE001 - the parent reads the error and ends the rig
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
