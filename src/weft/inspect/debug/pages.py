"""Serve Istio's debug endpoints. Input: a name such as `syncz` and its query. Output: the response that Istio's
tools expect.

HTTP and xDS streams return the same content. They authorize their clients (`access.py`, `stream.py`); this module
does not. Rule: no page changes anything, and no response contains a private key.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

import msgspec

from weft.control.connected_proxies import Diagnosis, Known, syncs
from weft.inspect.debug import config_dump
from weft.inspect.debug.registry import CLUSTER, endpoints, services
from weft.mesh.mesh import Mesh
from weft.model.names import ObjectKey, where_of

# istioctl compares responses with these texts.
NO_PROXY = "You must provide a proxyID in the query string\n"
NOT_HERE = "Proxy not connected to this Pilot instance. It may be connected to another instance.\n"
NO_PAGE = "404 page not found\n"


LONGEST_QUESTION = 1 << 20  # bytes of a request body, which is read only after authorization


class DebugResponse(msgspec.Struct, frozen=True):
    body: bytes
    status: int = 200

    @property
    def content_type(self) -> str:
        return "application/json" if self.status == 200 else "text/plain"


Query = Mapping[str, str]
# A one-line description, and the function that computes the page.
Page = tuple[str, Callable[[Query], Awaitable[DebugResponse]]]


class Debug:
    def __init__(
        self,
        diagnosis: Diagnosis,
        mesh: Mesh,
        contents: Iterable[tuple[ObjectKey, dict[str, Any]]] = (),
        more: Callable[[], Mapping[str, Page]] = dict,
        loaded: Callable[[], bool] = lambda: True,
    ) -> None:
        """`contents`: all objects as they were written. `more`: returns weft's own pages; it is called when one is
        requested. `loaded`: whether the control plane has read its objects."""
        self.diagnosis, self._mesh, self._contents, self._loaded = diagnosis, mesh, contents, loaded
        self._pages: dict[str, Page] = {
            "adsz": ("The connected proxies, and their subscriptions", self._adsz),
            "clusterz": ("The clusters whose objects are read", self._clusters),
            "config_dump": (
                "The config that a proxy should have, as Envoy's config_dump: proxyID=POD.NAMESPACE",
                self._dump,
            ),
            "configz": ("The objects in force, as they were written", self._configz),
            "connections": ("The connected proxies", self._connections),
            "endpointShardz": ("The endpoints of each service", self._endpoints),
            "endpointz": ("The same as endpointShardz", self._endpoints),
            "registryz": ("The services", self._registry),
            "syncz": ("The sync status of each proxy", self._syncz),
        }
        self._more = more

    async def answer(self, name: str, query: Query | None = None) -> DebugResponse:
        """Return the page `name`, the path after `/debug/`; a 404 if there is none. If `name` is empty or `list`,
        return the names of all pages."""
        query = query or {}
        if name in ("", "list"):
            pages = {page: line for page, (line, _) in sorted({**self._pages, **self._more()}.items())}
            return _json(list(pages) if name else pages, query)
        page = self._pages.get(name) or self._more().get(name)
        return await page[1](query) if page is not None else _text(404, NO_PAGE)

    async def public(self, name: str) -> DebugResponse | None:
        """Return the part of the page `name` that contains nothing about single workloads, services or objects; None
        if it has no such part. istioctl reads these pages without a token: `syncz` for the versions of proxies,
        `clusterz` for the clusters."""
        if name == "clusterz":
            return await self._clusters({})
        if name == "syncz":
            each = (known.sync for known in self.diagnosis.proxies())
            return _json([{"proxy_type": sync.proxy_type, "istio_version": sync.istio_version} for sync in each], {})
        return None

    async def _syncz(self, query: Query) -> DebugResponse:
        return _json(syncs(self.diagnosis.proxies(), query.get("namespace", "")), query)

    async def _clusters(self, query: Query) -> DebugResponse:
        """A mesh of weft has one cluster; Istio has a Secret for each remote one."""
        status = "synced" if self._loaded() else "syncing"
        return _json([{"id": CLUSTER, "secretName": "", "syncStatus": status}], query)

    async def _dump(self, query: Query) -> DebugResponse:
        proxy = self._proxy(query)
        if isinstance(proxy, DebugResponse):
            return proxy
        include_eds = query.get("include_eds") == "true"
        return _json(await config_dump.as_json(self.diagnosis, proxy.group, include_eds=include_eds), query)

    async def _adsz(self, query: Query) -> DebugResponse:
        if query.get("proxyID"):
            proxy = self._proxy(query)
            return proxy if isinstance(proxy, DebugResponse) else self._clients([proxy], query, whole=True)
        return self._clients(self.diagnosis.proxies(), query, whole=True)

    async def _connections(self, query: Query) -> DebugResponse:
        return self._clients(self.diagnosis.proxies(), query, whole=False)

    async def _registry(self, query: Query) -> DebugResponse:
        return _json(await services(self._mesh), query)

    async def _endpoints(self, query: Query) -> DebugResponse:
        return _json(await endpoints(self._mesh), query)

    async def _configz(self, query: Query) -> DebugResponse:
        return _json([self._object(key, body) for key, body in self._contents], query)

    def _object(self, key: ObjectKey, body: dict[str, Any]) -> dict[str, Any]:
        origin = next((value.origin for value in self._mesh.get(key) if value.origin is not None), None)
        if origin is None:
            return body
        if key in self._mesh.revisions:
            body["metadata"]["resourceVersion"] = self._mesh.revisions[key]
        return {**body, "origin": str(where_of(origin))}

    def _clients(self, proxies: list[Known], query: Query, *, whole: bool) -> DebugResponse:
        clients = []
        for known in proxies:
            client: dict[str, Any] = {
                "connectionId": f"{known.sync.proxy}-{known.stream}",
                "connectedAt": known.sync.connected_at,
                "address": known.address,
            }
            if whole:
                watches = self.diagnosis.watches(known)
                client |= {"labels": known.labels, "metadata": known.metadata, "watches": watches}
                if known.locality:
                    client["locality"] = known.locality
            clients.append(client)
        return _json({"totalClients": len(clients), "clients": clients}, query)

    def _proxy(self, query: Query) -> Known | DebugResponse:
        word = query.get("proxyID", "")
        if not word:
            return _text(400, NO_PROXY)
        return self.diagnosis.find(word) or _text(404, NOT_HERE)


def _json(value: object, query: Query) -> DebugResponse:
    body = msgspec.json.encode(value)
    return DebugResponse(msgspec.json.format(body, indent=2) if "pretty" in query else body)


def _text(status: int, words: str) -> DebugResponse:
    return DebugResponse(words.encode(), status)
