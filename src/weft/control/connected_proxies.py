"""Status of the connected proxies: which are connected, their sync state, and the config that each should have.

The status is computed from the xDS streams and the agents' streams, and is read-only. The servers on the Unix socket
and on the TCP ports share one `Diagnosis`, and authorize their clients themselves.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from weft.control.sync_status import NOT_SENT, STALE, SYNCED, TYPES, ProxySync, TypeSync
from weft.model.group import Group
from weft.xds.clients import StreamStatus, TypeStatus
from weft.xds.node_server import NodeServer
from weft.xds.node_stream import ProxyState
from weft.xds.server import XdsServer
from weft.xds.snapshot import Snapshots
from weft.xds.table import Rejected, Resource

_SENT_AND_ACKED = {"cluster": "CDS", "listener": "LDS", "route": "RDS", "endpoint": "EDS", "extensionconfig": "ECDS"}


class Known(msgspec.Struct, frozen=True):
    """A proxy that is connected to this control plane, directly or through a node agent. `sync`: its sync state.
    `stream`: the id of its xDS stream; 0 for a proxy behind an agent. `address`: that of its connection; the node for a
    proxy behind an agent. `labels`: those of its group. `node_id`, `metadata`, `locality`: those of its xDS node; the
    last two are empty for a proxy behind an agent."""

    sync: ProxySync
    node_id: str
    group: Group
    stream: int = 0  # id of the xDS stream; 0 for a proxy behind an agent
    address: str = ""
    labels: Mapping[str, str] = {}
    metadata: Mapping[str, Any] = {}
    locality: Mapping[str, str] = {}


class Diagnosis:
    def __init__(
        self,
        snapshots: Snapshots,
        server: XdsServer,
        node_server: NodeServer,
        said: Callable[[Group], Mapping[str, str]],
        *,
        replica: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`said`: returns the current errors of a group: type URL -> the last error message about a rejected resource
        of that type. `replica`: the name of this control plane, if there are several. `clock`: must be the clock that
        the xDS streams use."""
        self._said = said
        self.replica = replica or "weft"
        self._snapshots, self._server, self._node_server = snapshots, server, node_server
        self._clock = clock

    def proxies(self) -> list[Known]:
        """Return all connected proxies, sorted by name. A proxy that has just reconnected may be listed twice, until
        its old stream has ended."""
        direct = (self._direct(status) for status in self._server.streams())
        relayed = (self._relayed(state) for state in self._node_server.proxies())
        return sorted((*direct, *relayed), key=lambda known: (known.sync.proxy, known.stream))

    def find(self, word: str) -> Known | None:
        """Return the proxy that `word` names: by `POD.NAMESPACE` or node id, else by `POD`, else, as in Istio, by
        any part of a node id. None if no proxy matches."""
        proxies = self.proxies()
        names: tuple[Callable[[Known], bool], ...] = (
            lambda each: word in (each.sync.proxy, each.node_id),
            lambda each: each.sync.proxy.startswith(f"{word}."),
            lambda each: word in each.node_id,
        )
        # If a proxy has two streams, the last one is the newer.
        return next((matching[-1] for fits in names if (matching := [each for each in proxies if fits(each)])), None)

    def watches(self, known: Known) -> Mapping[str, tuple[str, ...]]:
        """Return, for each type, the names that the proxy `known` subscribes to. The tuple of a type is empty for a
        wildcard subscription. It is always empty for a proxy behind an agent, because agents do not report these
        names."""
        return {**dict.fromkeys(known.sync.resources, ()), **self._server.watches(known.stream)}

    def resources(self, group: Group, type_url: str) -> Mapping[str, Resource]:
        """Return the resources of a type that every proxy of the group should have, by name."""
        return self._snapshots.resources(group, type_url)

    def refused(self, group: Group) -> Mapping[tuple[str, str], Rejected]:
        """Return the resources that proxies of the group rejected and that are not sent, by type and name."""
        return self._snapshots.rejected(group)

    def _direct(self, status: StreamStatus) -> Known:
        errors = self._said(_group(status.group))
        types = {url: self._type(each, status.since, errors.get(url, "")) for url, each in status.types.items()}
        node, metadata = status.node, status.node.metadata
        sync = self._sync(
            node.id,
            status.group,
            types,
            cluster=str(metadata.get("CLUSTER_ID", "")),
            version=str(metadata.get("ISTIO_VERSION", "")),
            since=status.since,
        )
        return Known(
            sync=sync,
            node_id=node.id,
            group=_group(status.group),
            stream=status.stream_id,
            address=status.peer.address,
            labels=dict(_group(status.group).labels),
            metadata=metadata,
            locality={name: value for name, value in msgspec.structs.asdict(node.locality).items() if value},
        )

    def _relayed(self, state: ProxyState) -> Known:
        types, errors = {}, self._said(_group(state.group))
        for url, type_sync in state.types.items():
            settled, behind = state.settled.get(url, 0), state.behind.get(url, 0)
            types[url] = TypeSync(
                state=type_sync.value,
                sent={SYNCED: str(settled), STALE: str(behind)}.get(type_sync.value, ""),
                acked=_acked(type_sync.value, settled),
                last_error=errors.get(url, "") or state.refused.get(url, ""),
                stale_since_push=behind,
                stale_seconds=self._age(behind, state.since) if behind else None,
            )
        sync = self._sync(
            state.node_id,
            state.group,
            types,
            cluster=state.cluster,
            version=state.version,
            since=state.since,
            node=state.node,
        )
        group = _group(state.group)
        return Known(
            sync=sync,
            node_id=state.node_id,
            group=group,
            address=state.node,
            labels=dict(group.labels),
        )

    def _sync(
        self,
        node_id: str,
        group: Hashable,
        types: dict[str, TypeSync],
        *,
        cluster: str,
        version: str,
        since: float,
        node: str = "",
    ) -> ProxySync:
        kind, _, name = (*node_id.split("~"), "", "", "")[:3]
        by_word: dict[str, str] = {}
        for word, short in _SENT_AND_ACKED.items():
            sync = types.get(TYPES[short], TypeSync(NOT_SENT))
            by_word |= {f"{word}_sent": sync.sent, f"{word}_acked": sync.acked}
        return ProxySync(
            proxy=name or node_id,
            proxy_type=kind if name else "",
            cluster_id=cluster,
            istio_version=version,
            resources=types,
            namespace=_group(group).namespace,
            istiod=self.replica,
            node=node,
            connected_at=self._date(since),
            **by_word,
        )

    def _type(self, status: TypeStatus, since: float, error: str) -> TypeSync:
        state, behind = status.sync.value, status.behind
        acked = _acked(state, status.settled)
        return TypeSync(
            state=state,
            # What is acknowledged was sent, perhaps on an earlier stream.
            sent={SYNCED: acked, STALE: status.sent or str(behind)}.get(state, ""),
            acked=acked,
            sent_time="" if status.sent_at is None else self._date(status.sent_at),
            last_error=error or status.error or "",
            stale_since_push=behind if state == STALE else 0,
            stale_seconds=self._age(behind, since) if state == STALE else None,
        )

    def _age(self, push: int, since: float) -> float:
        """Return the seconds since the push with the number `push`, or since the time `since` at which the proxy
        connected, whichever was later."""
        return round(max(0.0, self._clock() - max(since, self._snapshots.times.at(push))), 1)

    def _date(self, at: float) -> str:
        then = datetime.fromtimestamp(time.time() - (self._clock() - at), UTC)
        return then.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def syncs(known: Iterable[Known], namespace: str = "") -> list[ProxySync]:
    return [each.sync for each in known if namespace in ("", each.sync.namespace)]


def _acked(state: str, settled: int) -> str:
    return str(settled) if settled or state == SYNCED else ""


def _group(group: Hashable) -> Group:
    assert isinstance(group, Group)  # noqa: S101 - the plane's streams join nothing else
    return group
