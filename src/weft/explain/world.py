"""What an explanation is told from outside: names and addresses, who stands at them, and what their proxies got."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any as Anything
from typing import Protocol, TypeVar

import msgspec
from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.endpoint.v3.endpoint_pb2 import ClusterLoadAssignment
from envoy.config.listener.v3.listener_pb2 import Listener
from envoy.config.route.v3.route_pb2 import RouteConfiguration
from google.protobuf.any_pb2 import Any
from google.protobuf.message import Message

from weft.explain.decision import ObjectSource

M = TypeVar("M", bound=Message)

_LISTENER, _ROUTE, _CLUSTER, _ENDPOINT = (
    f"type.googleapis.com/{kind.DESCRIPTOR.full_name}"
    for kind in (Listener, RouteConfiguration, Cluster, ClusterLoadAssignment)
)


class EnvoyResources:
    """What one proxy has, by name. What is packed inside is opened once."""

    def __init__(
        self,
        listeners: Iterable[Listener] = (),
        routes: Iterable[RouteConfiguration] = (),
        clusters: Iterable[Cluster] = (),
        endpoints: Iterable[ClusterLoadAssignment] = (),
    ) -> None:
        self.listeners: Mapping[str, Listener] = {each.name: each for each in listeners}
        self.routes: Mapping[str, RouteConfiguration] = {each.name: each for each in routes}
        self.clusters: Mapping[str, Cluster] = {each.name: each for each in clusters}
        self.endpoints: Mapping[str, ClusterLoadAssignment] = {each.cluster_name: each for each in endpoints}
        self._opened: dict[tuple[str, bytes], Anything] = {}
        self.kept: dict[object, Anything] = {}  # what stages have worked out of resources, under keys of their own

    @classmethod
    def from_bytes(cls, sent: Iterable[tuple[str, bytes]]) -> EnvoyResources:
        """Of pairs of a type URL and the resource as it was sent; other types are passed over."""
        by_type: dict[str, list[bytes]] = {_LISTENER: [], _ROUTE: [], _CLUSTER: [], _ENDPOINT: []}
        for type_url, body in sent:
            if type_url in by_type:
                by_type[type_url].append(body)
        return cls(
            map(Listener.FromString, by_type[_LISTENER]),
            map(RouteConfiguration.FromString, by_type[_ROUTE]),
            map(Cluster.FromString, by_type[_CLUSTER]),
            map(ClusterLoadAssignment.FromString, by_type[_ENDPOINT]),
        )

    def opened(self, packed: Any, kind: type[M]) -> M | None:
        """The message inside, if it is of this kind."""
        if not packed.Is(kind.DESCRIPTOR):  # type: ignore[arg-type]
            return None
        key = (packed.type_url, packed.value)
        found: M | None = self._opened.get(key)
        if found is None:
            found = self._opened[key] = kind.FromString(packed.value)
        return found


class Closed(msgspec.Struct, frozen=True):
    """A server of a gateway by which nobody comes in."""

    port: int  # at which it would listen
    hosts: tuple[str, ...]
    why: str
    what: str  # the same, with whose server it is
    sources: tuple[ObjectSource, ...] = ()


class ExplainedWorkload(msgspec.Struct, frozen=True, eq=False):
    """Somebody at an address, with a proxy or without."""

    name: str
    addresses: tuple[str, ...] = ()
    identity: str = ""  # what its proxy's certificate says, a SPIFFE id
    resources: EnvoyResources | None = None  # None: no proxy
    ports: frozenset[int] | None = None  # on which its application listens; None: not known, so on all
    doors: Mapping[int, int] | None = None  # of a gateway: where each port leads that callers know; None: it is none
    closed: tuple[Closed, ...] = ()  # of a gateway
    published: Mapping[int, int] = {}  # of a gateway: where each port of the machine leads
    unread: Mapping[str, str] = {}  # of a gateway: Secrets that its proxy has refused and never had, and what it said


class NoPort(msgspec.Struct, frozen=True):
    """A service that has its own address, and not the port that is called there."""

    why: str
    sources: tuple[ObjectSource, ...] = ()


class Unseen(msgspec.Struct, frozen=True):
    """A service that has an address, and that the caller's proxy is not shown."""

    why: str
    sources: tuple[ObjectSource, ...] = ()


class World(Protocol):
    def workload(self, name: str) -> ExplainedWorkload | None: ...

    def at(self, address: str) -> ExplainedWorkload | None:
        """Who stands at an address; None for whoever the mesh does not know."""
        ...

    def behind(self, address: str, port: int) -> tuple[tuple[str, int], ...] | None:
        """To whom the network itself sends what is for a service's own address, where no proxy has chosen; None if it
        is no such address."""
        ...

    def no_port(self, address: str, port: int) -> NoPort | None:
        """Whose own address it is, if it is that of a service without this port: nobody answers there."""
        ...

    def unseen(self, caller: ExplainedWorkload, address: str, port: int) -> Unseen | None:
        """Whose own address and port it is, if he is hidden from the caller's proxy."""
        ...

    def is_shown(self, caller: ExplainedWorkload, address: str, port: int) -> bool:
        """Whether there is anybody of whom the caller's proxy is told if this is called."""
        ...

    def uncalled(self, caller: ExplainedWorkload, cluster: str) -> str:
        """Why the caller's proxy may call nobody of a cluster that has no endpoints; "" if nobody knows."""
        ...

    def resolve(self, host: str, caller: ExplainedWorkload, *, by_proxy: bool = False) -> tuple[str, ...]:
        """The addresses of a name, as the caller's application learns them, or its proxy; the name itself where a proxy
        asks somebody outside of the mesh."""
        ...

    def after_call(self, caller: ExplainedWorkload, address: str) -> EnvoyResources:
        """What the caller's proxy has once it has been told of whoever has this address."""
        ...

    def on_demand(self, caller: ExplainedWorkload) -> str:
        """Why calls of what the caller's proxy was not told of are held."""
        ...

    def intercepts(self, workload: ExplainedWorkload, address: str, port: int, *, inbound: bool) -> bool:
        """Whether a connection to this address and port meets the workload's proxy, on its way in or out."""
        ...
