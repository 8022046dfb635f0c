"""The network between a client and the API server, in the test's hand: it can fall silent, or break."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager


class Wire:
    def __init__(self):
        self.port = 0
        self.opened = 0
        self._budget = None
        self._flows = asyncio.Event()
        self._flows.set()
        self._transports = set()

    def stall(self):
        """Bytes are taken and go nowhere; connections stay open, and new ones are taken as well."""
        self._flows.clear()

    def stall_after(self, size):
        """When that many bytes more have gone through."""
        self._budget = size

    def flow(self):
        self._budget = None
        self._flows.set()

    def cut(self):
        """Every connection that is open now ends."""
        for transport in tuple(self._transports):
            transport.abort()

    async def carry(self, address, reader, writer):
        self.opened += 1
        self._transports.add(writer.transport)
        there = None
        try:
            there_reader, there = await asyncio.open_connection(*address)
            self._transports.add(there.transport)
            await asyncio.gather(self._pump(reader, there), self._pump(there_reader, writer))
        except OSError:
            pass
        finally:
            for end in (writer, there):
                if end is not None:
                    self._transports.discard(end.transport)
                    end.transport.abort()

    async def _pump(self, reader, writer):
        while chunk := await reader.read(65536):
            if self._budget is not None:
                self._budget -= len(chunk)
                if self._budget < 0:
                    self.stall()
            await self._flows.wait()
            writer.write(chunk)
            await writer.drain()
        writer.transport.abort()


@asynccontextmanager
async def wire(host, port):
    found = Wire()
    tasks = set()

    async def accept(reader, writer):
        tasks.add(asyncio.current_task())
        await found.carry((host, port), reader, writer)

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    found.port = server.sockets[0].getsockname()[1]
    try:
        yield found
    finally:
        server.close()
        found.flow()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
