"""Find out why a proxy has a resource: for each part of the resource, the objects that the part comes from, their file
and line, and the decision rules (`reasons/rules.py`) that apply to the part. A part without objects is a default."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import msgspec
from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.endpoint.v3.endpoint_pb2 import ClusterLoadAssignment
from envoy.config.listener.v3.listener_pb2 import Listener
from envoy.config.route.v3.route_pb2 import RouteConfiguration
from envoy.extensions.transport_sockets.tls.v3.secret_pb2 import Secret
from google.protobuf.message import Message

from weft.base.problem import Problem, Where
from weft.base.suggest import did_you_mean
from weft.explain.decision import sources_of
from weft.inspect.reasons import clusters, endpoints, gateways, listeners, routes, rules
from weft.inspect.reasons.part import Ground, Part, placed, sources
from weft.inspect.reasons.rules import DecisionRule
from weft.inspect.stage import Stage
from weft.mesh.mesh import Mesh
from weft.model.group import ProxyKind
from weft.model.inbound_port import InboundPort
from weft.model.proxy import CERTIFICATE, ROOTS
from weft.translate import names
from weft.xds.types import CLUSTER, ENDPOINT, LISTENER, ROUTE, SECRET

_KINDS = {LISTENER: "listener", ROUTE: "route", CLUSTER: "cluster", ENDPOINT: "endpoints", SECRET: "secret"}
_TYPES: Mapping[str, type[Message]] = {
    LISTENER: Listener,
    ROUTE: RouteConfiguration,
    CLUSTER: Cluster,
    ENDPOINT: ClusterLoadAssignment,
    SECRET: Secret,
}
_MEANT = {word: url for url, kind in _KINDS.items() for word in (kind, f"{kind}s", kind.removesuffix("s"))}
KINDS = tuple(_KINDS.values())
_FIELD = re.compile(r"[a-z_0-9]+")


class ResourcePart(msgspec.Struct, frozen=True):
    """One part of a resource, the objects that the part comes from, and the rules that were applied. Without objects,
    the part is a default. `path` and `at` both name the part: `path` by the names of list entries, `at` by their
    positions."""

    path: str
    at: str  # `path` with positions in lists instead of names
    sources: tuple[str, ...] = ()  # the objects as text, with the field of the object where it is known
    rules: tuple[DecisionRule, ...] = ()


class ResourceReasons(msgspec.Struct, frozen=True):
    proxy: str
    kind: str
    name: str
    version: str
    parts: tuple[ResourcePart, ...]
    refused: tuple[str, ...] = ()  # the proxy's rejection of a newer version, with the object at fault


class NoSuchResource(Exception):
    def __init__(self, name: str, proxy: str, known: list[str], uncalled: str = "") -> None:
        """`known`: the names of the proxy's resources. `uncalled`: the host of the resource, if the proxy gets the
        resource at its pod's first call to that host."""
        what = f"{proxy} has no resource `{name}`"
        super().__init__(what)
        if uncalled:
            shown = f"weft proxy-config clusters {proxy} --host {uncalled} --why"
            hint = f"the proxy gets {uncalled} at its pod's first call to it; show the config after that call: {shown}"
            self.problem = Problem(Where(), what, hint)
            return
        listed = "list its resources with: weft proxy-config all " + proxy
        guess = _with_host(name, known) or (did_you_mean(name, known) if len(known) <= 5_000 else "")
        self.problem = Problem(Where(), what, guess if guess.startswith("did you") else listed)


def _with_host(word: str, known: list[str]) -> str:
    """Return a hint with a resource of the host that `word` names, if there is one: users often write the name of a
    service instead of a resource."""
    hosts = ((name, names.called_host(name)) for name in known)
    first = next((name for name, host in hosts if host and f"{host}.".startswith(f"{word.lower().rstrip('.')}.")), "")
    return f"did you mean `{first}`?" if first else ""


class NoSuchPart(Exception):
    def __init__(self, kind: str, name: str, path: str, known: list[str]) -> None:
        what = f"the {kind} {name} has no part `{path}`"
        super().__init__(what)
        guess = did_you_mean(path, known)
        self.problem = Problem(Where(), what, guess or f"it has {', '.join(known[:12])}")


def why(
    mesh: Mesh,
    stage: Stage,
    proxy: str,
    resource: str,
    kind: str = "",
    refused: Mapping[tuple[str, str], tuple[Problem, ...]] | None = None,
) -> list[ResourceReasons]:
    """Return the reasons for each resource of the proxy with this name, and of this kind if given. `NAME.PATH` or
    `NAME:PATH` selects one part of the resource. `refused`: type and name -> the rejections of the resource by
    proxies of the group. Raises NoSuchResource, NoSuchPart."""
    resources = _ProxyResources(mesh, stage, proxy, refused or {})
    types = _types(kind)
    name, below = _split(resource, resources.names(types))
    reasons: list[ResourceReasons] = []
    missed: list[NoSuchPart] = []  # a cluster and its endpoints share a name, but have different parts
    for type_url in types:
        if resources.has(type_url, name):
            try:
                reasons.append(resources.reasons(type_url, name, below))
            except NoSuchPart as error:
                missed.append(error)
    if not reasons and missed:
        raise next((each for each in missed if each.problem.hint.startswith("did you")), missed[0])
    if not reasons:
        raise NoSuchResource(resource, proxy, sorted(resources.names(types)), _uncalled(mesh, stage, proxy, resource))
    return reasons


def _uncalled(mesh: Mesh, stage: Stage, proxy: str, resource: str) -> str:
    """If `resource` is the name of an outbound cluster that the proxy would get on demand, at the first call to the
    cluster's host, return that host; "" otherwise."""
    group, host = stage.group(proxy), names.called_host(resource)
    seen = host and mesh.service(host, mesh.scope(group)) is not None
    return host if seen and not stage.telling(group).every else ""


def every(
    mesh: Mesh,
    stage: Stage,
    proxy: str,
    kind: str,
    refused: Mapping[tuple[str, str], tuple[Problem, ...]] | None = None,
) -> list[ResourceReasons]:
    """Return the reasons for all resources of this kind that the proxy has, including those that the control plane
    does not send separately because they are part of another resource. `refused`: type and name -> the rejections
    of the resource by proxies of the group."""
    resources = _ProxyResources(mesh, stage, proxy, refused or {})
    return [
        resources.reasons(type_url, name, "")
        for type_url in _types(kind)
        for name in sorted(resources.names((type_url,)))
    ]


class _ProxyResources:
    """The resources of one proxy, and the reasons for them."""

    def __init__(
        self, mesh: Mesh, stage: Stage, proxy: str, refused: Mapping[tuple[str, str], tuple[Problem, ...]]
    ) -> None:
        group = stage.group(proxy)
        self._mesh, self._proxy, self._refused = mesh, proxy, refused
        self._ground = Ground(mesh, group)
        self._resources = stage.resources(group, _TYPES)
        self._versions = stage.versions(group, _TYPES)

    def names(self, types: tuple[str, ...]) -> set[str]:
        return {name for type_url in types for name in (*self._resources[type_url], *self._unsent(type_url))}

    def has(self, type_url: str, name: str) -> bool:
        return name in self._resources[type_url] or name in self._unsent(type_url)

    def reasons(self, type_url: str, name: str, below: str) -> ResourceReasons:
        parts = list(self._parts(type_url, name))
        refused = self._refused.get((type_url, name), ())
        if refused:
            parts[0] = msgspec.structs.replace(parts[0], rules=(*parts[0].rules, rules.LAST_ACCEPTED))
        return ResourceReasons(
            self._proxy,
            _KINDS[type_url],
            name,
            self._versions.get((type_url, name), ""),
            tuple(map(self._made, self._below(parts, type_url, name, below))),
            tuple(f"{problem.where}: {problem.what}" for problem in refused),
        )

    def _unsent(self, type_url: str) -> tuple[str, ...]:
        """The names of the proxy's resources of this type that the control plane does not send as separate
        resources: the secrets from the node's agent, and the inbound routes, which are part of a listener."""
        if type_url == SECRET:
            return (CERTIFICATE, ROOTS)
        if type_url == ROUTE:
            return (*(name for port in self._ground.view.inbound for name in _ways_to(port)), names.INBOUND_PASSTHROUGH)
        return ()

    @property
    def _at_edge(self) -> bool:
        return self._ground.group.kind is ProxyKind.GATEWAY

    def _parts(self, type_url: str, name: str) -> Iterator[Part]:
        body = self._resources[type_url].get(name)
        if body is None:
            yield from self._parts_of_unsent(type_url, name)
            return
        message = _TYPES[type_url].FromString(body)
        match message:
            case Listener() if self._at_edge:
                yield from gateways.listener_parts(self._ground, message)
            case RouteConfiguration() if self._at_edge:
                yield from gateways.route_parts(self._ground, message)
            case Secret() if self._at_edge and not name.startswith("outbound|"):
                yield gateways.secret_part(self._ground, name)
            case Secret() if name.startswith(("file-cert:", "file-root:")):
                sidecar = self._ground.sidecar
                objects = sources(sidecar.origin, part="ingress") if sidecar is not None else ()
                yield Part("", "", objects, (rules.FILES_OF_SERVER,))
            case Listener():
                yield from listeners.parts(self._ground, message)
            case RouteConfiguration():
                yield from routes.parts(self._ground, message)
            case Cluster():
                yield from clusters.parts(self._ground, message)
            case ClusterLoadAssignment():
                yield from endpoints.parts(self._ground, message)
            case _:
                cluster = Cluster.FromString(self._resources[CLUSTER].get(name.rpartition("/")[0], b""))
                asked_by = tuple(each for each in sources_of(cluster.metadata) if each.kind == "DestinationRule")
                yield clusters.secret(self._ground, name, asked_by)

    def _parts_of_unsent(self, type_url: str, name: str) -> Iterator[Part]:
        if type_url == SECRET:
            yield endpoints.secret(self._ground, name)
            return
        port = next((each for each in self._ground.view.inbound if name in _ways_to(each)), None)
        origins, by = clusters.entrance(self._ground, port) if port is not None else ((), (rules.INBOUND_REST,))
        yield Part("", "", origins, (rules.INBOUND_LISTENER, *by))
        for path in ("virtual_hosts[0]", "virtual_hosts[0].routes[0]"):
            yield Part(path, path, origins, (rules.INBOUND_LISTENER, *by))
        for field, rule in (("timeout", rules.NO_TIMEOUT), ("retry_policy", rules.RETRIES_TO_WORKLOAD)):
            path = f"virtual_hosts[0].routes[0].route.{field}"
            yield Part(path, path, (), (rule,))

    def _below(self, parts: list[Part], type_url: str, name: str, below: str) -> list[Part]:
        """Those of `parts` (all parts of the resource `name`) that are at the path `below` or inside it; if there are
        none, the nearest part that contains the path. Raises NoSuchPart."""
        selected = [each for each in parts if each.path.startswith(below) or each.at.startswith(below)]
        if selected:
            return selected
        field = _FIELD.match(below)
        known = sorted(_TYPES[type_url].DESCRIPTOR.fields_by_name)
        if field is None or field[0] not in known:
            raise NoSuchPart(_KINDS[type_url], name, below, known)
        around = [each for each in parts if _is_around(each.path, below) or _is_around(each.at, below)]
        if around == parts[:1] and any(each.path.startswith(f"{field[0]}[") for each in parts):
            listed = [each.path for each in parts if each.path.startswith(f"{field[0]}[")]
            raise NoSuchPart(_KINDS[type_url], name, below, listed)
        return around[-1:]

    def _made(self, part: Part) -> ResourcePart:
        return ResourcePart(
            part.path, part.at, tuple(str(placed(self._mesh, each)) for each in part.sources), part.rules
        )


def _ways_to(port: InboundPort) -> tuple[str, ...]:
    declared, beside = (names.inbound_cluster(port.number, as_called=each) for each in (False, True))
    return (declared, beside) if port.carried.both_ways else (declared,)


def _types(kind: str) -> tuple[str, ...]:
    if not kind:
        return tuple(_KINDS)
    if kind not in _MEANT:
        raise NoSuchKind(kind)
    return (_MEANT[kind],)


class NoSuchKind(Exception):
    def __init__(self, kind: str) -> None:
        what = f"there is no kind of resource `{kind}`"
        super().__init__(what)
        self.problem = Problem(Where(), what, f"one of {', '.join(KINDS)}")


def _split(resource: str, known: set[str]) -> tuple[str, str]:
    """Split `NAME.PATH` into name and path. Names contain dots and colons too, so the longest name in `known`
    decides."""
    if resource in known:
        return resource, ""
    begun = [name for name in known if resource.startswith(name) and resource[len(name)] in ".:"]
    if not begun:
        return resource, ""
    name = max(begun, key=len)
    return name, resource[len(name) + 1 :]


def _is_around(path: str, below: str) -> bool:
    return not path or (below.startswith(path) and below[len(path) : len(path) + 1] in (".", "["))
