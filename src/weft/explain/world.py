"""The inputs of an explanation: names and addresses, the workloads at them, and the resources of their proxies."""

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
    """The resources of one proxy: listeners, route configurations, clusters and endpoints, by name. Packed messages
    (`Any`) are decoded once."""

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
        # Cache of values that stages derive from the resources. Each stage uses its own keys.
        self.kept: dict[object, Anything] = {}

    @classmethod
    def from_bytes(cls, sent: Iterable[tuple[str, bytes]]) -> EnvoyResources:
        """Parses `sent`, pairs of a type URL and a serialized resource. Resources other than listeners, route
        configurations, clusters and endpoints are ignored."""
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
        """Decodes a packed message. Returns None if it is not of the type `kind`."""
        if not packed.Is(kind.DESCRIPTOR):  # type: ignore[arg-type]
            return None
        key = (packed.type_url, packed.value)
        message: M | None = self._opened.get(key)
        if message is None:
            message = self._opened[key] = kind.FromString(packed.value)
        return message


class Closed(msgspec.Struct, frozen=True):
    """A configured server of a gateway that accepts no connections. `port`: the port on which the server would listen.
    `why`: the reason. `what`: the reason together with the Gateway that declares the server. `sources`: the objects
    behind the reason."""

    port: int
    hosts: tuple[str, ...]
    why: str
    what: str
    sources: tuple[ObjectSource, ...] = ()


class ExplainedWorkload(msgspec.Struct, frozen=True, eq=False):
    """A workload at an address, with a proxy or without. `identity`: the SPIFFE ID in its proxy's certificate.
    `resources`: None if the workload has no proxy. `ports`: the ports on which its application listens; None if they
    are unknown, so that all ports are assumed.

    The other fields are for gateways. `doors`: for each port that callers use, the port on which the proxy listens;
    None if the workload is no gateway. `closed`: the servers that accept no connections. `published`: for each port of
    the machine, the port on which the proxy listens. `unread`: the Secrets that the proxy rejected and of which it has
    no earlier version, each with Envoy's error."""

    name: str
    addresses: tuple[str, ...] = ()
    identity: str = ""
    resources: EnvoyResources | None = None
    ports: frozenset[int] | None = None
    doors: Mapping[int, int] | None = None
    closed: tuple[Closed, ...] = ()
    published: Mapping[int, int] = {}
    unread: Mapping[str, str] = {}


class NoPort(msgspec.Struct, frozen=True):
    """Why a call fails: the service at the called address does not have the called port. `why`: the reason, as text.
    `sources`: the objects that declare the service."""

    why: str
    sources: tuple[ObjectSource, ...] = ()


class Unseen(msgspec.Struct, frozen=True):
    """Why a call to a service's address is not handled as a call to that service: the service is not visible to the
    caller's proxy."""

    why: str
    sources: tuple[ObjectSource, ...] = ()


class World(Protocol):
    def workload(self, name: str) -> ExplainedWorkload | None: ...

    def at(self, address: str) -> ExplainedWorkload | None:
        """The workload at an address; None if no workload of the mesh has the address."""
        ...

    def behind(self, address: str, port: int) -> tuple[tuple[str, int], ...] | None:
        """The addresses and ports of the endpoints behind a service's address, to which the network forwards a
        connection that no proxy handles. None if the address is not that of a service."""
        ...

    def no_port(self, address: str, port: int) -> NoPort | None:
        """Why a call to this address and port fails: the service at the address does not have the port. None if it
        has the port, or if no service has the address."""
        ...

    def unseen(self, caller: ExplainedWorkload, address: str, port: int) -> Unseen | None:
        """Why the service with this address and port is not visible to the caller's proxy. None if it is visible, if
        no service has this address and port, or if the caller has no sidecar."""
        ...

    def is_shown(self, caller: ExplainedWorkload, address: str, port: int) -> bool:
        """Whether the caller's proxy would get configuration for this address and port on demand."""
        ...

    def uncalled(self, caller: ExplainedWorkload, cluster: str) -> str:
        """Why a cluster of the caller's proxy has no endpoints; "" if the reason is not known."""
        ...

    def resolve(self, host: str, caller: ExplainedWorkload, *, by_proxy: bool = False) -> tuple[str, ...]:
        """The addresses to which a name resolves for the caller's application, or for its proxy (`by_proxy`); empty
        if it does not resolve. A proxy resolves names outside the mesh by DNS; for these the result is the name
        itself."""
        ...

    def after_call(self, caller: ExplainedWorkload, address: str) -> EnvoyResources:
        """The resources of the caller's proxy after the control plane has sent it the configuration for this
        address."""
        ...

    def on_demand(self, caller: ExplainedWorkload) -> str:
        """Why the caller's proxy holds calls to destinations for which it has no configuration yet (on-demand CDS),
        as text. Called only for a proxy that holds such calls."""
        ...

    def intercepts(self, workload: ExplainedWorkload, address: str, port: int, *, inbound: bool) -> bool:
        """Whether the workload's proxy intercepts a connection to this address and port, inbound or outbound."""
        ...
