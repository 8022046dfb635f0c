"""The thread on which the mesh's two DNS servers run, for pods and for proxies, with an event loop of its own. So a
flood of queries does not slow down the engine's event loop, and a busy engine delays only those queries that need a new
index after a change of the mesh.

Input: `Lookups`, whose index is built on the engine's event loop. Rule: everything that changes the mesh happens on the
engine's event loop; this thread only reads finished indexes.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from weft.local.dns import PROXY_PORT, DnsServer
from weft.local.lookups import Lookups
from weft.netns.namespace import NetworkNamespace
from weft.translate.lookup import Answer, NameLookup

_Found = Callable[[Sequence[str], str], None]


class DnsThread:
    def __init__(self, lookups: Lookups, found: _Found) -> None:
        """`lookups`: resolves the names of the mesh. `found`: as for `DnsServer`; it is called on the engine's event
        loop."""
        self._lookups, self._found = lookups, found
        self._engine: asyncio.AbstractEventLoop | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self.for_pods = DnsServer(self._for_pod, found=self._pass_on)
        self.for_proxies = DnsServer(self._for_proxy)
        self._rebuilding: asyncio.Future[NameLookup] | None = None

    async def start(self, namespace: NetworkNamespace, addresses: Sequence[str]) -> None:
        """Listen at these addresses of a network namespace. Raises OSError if that is not possible."""
        self._engine, self._loop = asyncio.get_running_loop(), asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="weft-dns", daemon=True)
        self._thread.start()
        await self._on_thread(self.for_pods.listen(namespace, addresses))
        await self._on_thread(self.for_proxies.listen(namespace, addresses, PROXY_PORT))

    async def close(self) -> None:
        if self._loop is None or self._thread is None:
            return
        await self._on_thread(self.for_pods.close())
        await self._on_thread(self.for_proxies.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        await asyncio.to_thread(self._thread.join)
        self._loop.close()
        self._loop = self._thread = None

    async def _on_thread(self, work: Coroutine[Any, Any, None]) -> None:
        assert self._loop is not None  # noqa: S101 - the caller has started the thread
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    # On the thread

    async def _for_pod(self, name: str, asker: str) -> Answer:
        return (await self._index()).look_up(name, self._lookups.namespace_of(asker))

    async def _for_proxy(self, name: str, asker: str) -> Answer:
        return (await self._index()).look_up_for_proxy(name, self._lookups.namespace_of(asker))

    async def _index(self) -> NameLookup:
        """Return the index of the mesh's names. If the index must be built anew, wait until the engine has built it;
        all waiting queries share one build."""
        if (fresh := self._lookups.fresh) is not None:
            return fresh
        if self._rebuilding is None:
            assert self._engine is not None  # noqa: S101 - set before the servers listen
            building = asyncio.run_coroutine_threadsafe(self._build(), self._engine)
            self._rebuilding = asyncio.wrap_future(building)
            self._rebuilding.add_done_callback(self._has_built)
        return await asyncio.shield(self._rebuilding)

    def _has_built(self, _building: asyncio.Future[NameLookup]) -> None:
        self._rebuilding = None

    async def _build(self) -> NameLookup:
        return self._lookups.index()

    def _pass_on(self, addresses: Sequence[str], asker: str) -> None:
        assert self._engine is not None  # noqa: S101 - set before the servers listen
        self._engine.call_soon_threadsafe(self._found, addresses, asker)
