"""The proxies of a mesh behind an agent, as on a cluster: the agent's stream to the control plane with real frames,
and a socket that Envoys use instead of the control plane's own. The control plane's end can be closed and opened
again."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import grpc.aio

from relay_rig import Placed
from weft.control.node_metadata import group_of
from weft.control.plane import ControlPlane
from weft.control.relays import Relays
from weft.model.proxy import PROXY_GID, PROXY_UID
from weft.node.door import Doorway, WorkloadSocket
from weft.node.pods import KubeletPod
from weft.node.relay import Relay
from weft.xds.node_server import NodeServer
from weft.xds.server import OPTIONS
from weft.xds.upstream import Line

NODE = "node-1"


class Known(Relays):
    """Every caller is the agent: no other process can reach the socket."""

    def admit(self, node, principal):
        return node


class Agent(Relay):
    """Identifies a pod by the node of its request, because all pods share a socket here."""

    def __init__(self, directory: Path, placed: Placed, number: int = 1) -> None:
        self.directory, self.placed, self.line_socket = directory, placed, directory / "line.sock"
        self.number, self.door = number, None

        async def line():
            return Line(target=f"unix:{self.line_socket}")

        super().__init__(directory / "private", NODE, line)

    def join(self, stream_id, node, peer):
        self.placed.put(node.id, NODE, group_of(node.id, node.metadata))
        self._copy.add(node.id)
        return self._group(stream_id, KubeletPod("shop", node.id, node.id, "default"))

    async def open(self, address: str) -> str:
        """Pods use this socket, whichever agent is behind it."""
        path = address.removeprefix("unix:")
        self.door = WorkloadSocket(Doorway(path=Path(path), uid=PROXY_UID, gid=PROXY_GID), "")
        self.door._server = await asyncio.start_unix_server(self.door._enter, path)
        await self.serve()
        return address

    async def killed(self) -> Agent:
        """Return the next agent, which has no state and does not serve yet."""
        await self.close()
        after = Agent(self.directory, self.placed, self.number + 1)
        after.door = self.door
        return after

    async def serve(self) -> None:
        inner = f"{self.directory}/agent-{self.number}.sock"
        await self._server.listen(f"unix:{inner}")
        self.door._inner = inner
        self.start()


class Line15012:
    """The control plane's end of the stream."""

    def __init__(self, control: ControlPlane, agent: Agent) -> None:
        self._nodes = NodeServer(control._snapshots, Known(control, agent.placed))
        self._agent = agent
        self._server: grpc.aio.Server | None = None

    async def open(self) -> None:
        async def anybody(peer, token):
            return peer

        self._server = grpc.aio.server(options=OPTIONS)
        self._server.add_generic_rpc_handlers((self._nodes.handlers(anybody),))
        self._server.add_insecure_port(f"unix:{self._agent.line_socket}")
        await self._server.start()

    async def shut(self) -> None:
        await self._server.stop(None)


@contextlib.asynccontextmanager
async def behind_agent(monkeypatch, directory: Path):
    """Put every mesh started in this block behind an agent; yields a list that will contain the control plane's end
    of its stream."""
    found: list[Line15012] = []
    agent = Agent(directory, Placed())
    listen = ControlPlane.listen

    async def instead(control, address, only=None, *, owned=False):
        if owned:
            return await listen(control, address, only, owned=owned)
        found.append(Line15012(control, agent))
        await found[0].open()
        monkeypatch.setattr(control, "wait_synced", agent._server.wait_synced)
        return await agent.open(address)

    monkeypatch.setattr(ControlPlane, "listen", instead)
    try:
        yield found, agent
    finally:
        await agent.close()
        if found:
            await found[0].shut()
