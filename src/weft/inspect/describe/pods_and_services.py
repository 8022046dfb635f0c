"""Collect facts about one pod or one service: its identity, the objects that select it, route to it and guard it,
and the problems of these objects. Input: the mesh and its problems. Output: values, which `text.py` turns into
sentences.

Rule: every fact comes from the same model that translation reads, so a description cannot differ from the config
that is served.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from weft.base.ambiguous import in_several_namespaces
from weft.base.problem import Problem, Severity, Where
from weft.base.suggest import did_you_mean
from weft.inject.webhooks import INJECT_LABEL
from weft.inspect.describe.gateways import LeftOutFacts, ServedFacts, not_served, served
from weft.inspect.describe.routes import Routing, RuleFacts, named, routings, rules
from weft.inspect.stage import Stage
from weft.mesh.mesh import Mesh
from weft.model.authorization_policy import AuthorizationPolicy
from weft.model.destination_rule import DestinationRule
from weft.model.group import Group, group_of
from weft.model.identity import Identity
from weft.model.instance import Instance
from weft.model.names import ObjectKey, host_covers, selects, where_of
from weft.model.peer_authentication import PeerAuthentication, TlsMode, decider
from weft.model.policy import Policy
from weft.model.request_authentication import RequestAuthentication
from weft.model.service import Protocol, Service
from weft.model.telemetry import Telemetry
from weft.model.value import Value
from weft.model.virtual_service import VirtualService
from weft.model.workload import Workload
from weft.translate.names import called_host
from weft.xds.types import CLUSTER

Refused = Mapping[ObjectKey, tuple[Value, ...]]

_NONE: Refused = {}


class NoSuchService(Exception):
    def __init__(self, word: str, known: Iterable[str]) -> None:
        what = f"there is no service `{word}`"
        super().__init__(what)
        hint = did_you_mean(word, set(known)) or "name it as NAME -n NAMESPACE, NAME.NAMESPACE, or by its whole host"
        self.problem = Problem(Where(), what, hint)


class Port(msgspec.Struct, frozen=True):
    """A port of a service. `target`: the pod port to which the port leads; a name if no pod has a port of that name.
    `served`: False if there are pods, but none has the target port."""

    number: int
    name: str
    protocol: str
    target: int | str  # port number of the pod, or a port name that the pod does not have
    served: bool = True


class Mode(msgspec.Struct, frozen=True):
    """The mTLS mode of a pod at a port. `port`: 0 stands for all ports without a mode of their own. `decided_by`: the
    PeerAuthentication; None for the default. `intercepted`: whether the proxy intercepts calls to the port."""

    port: int  # 0: every other port
    mode: TlsMode
    decided_by: Where | None = None
    intercepted: bool = True


class Guard(msgspec.Struct, frozen=True):
    """A policy that applies to a pod. `where`: the place of its object. `says`: its summary: `ALLOW, 2 rules`, or the
    issuers that it accepts."""

    where: Where
    says: str


class ServiceFacts(msgspec.Struct, frozen=True):
    host: str
    where: Where
    ports: tuple[Port, ...]
    rules: tuple[RuleFacts, ...]
    routings: tuple[Routing, ...]


class Proxied(msgspec.Struct, frozen=True):
    has: bool
    why: str
    where: Where | None = None


class Calling(msgspec.Struct, frozen=True):
    """The services that a proxy has, in a mesh where services are sent on demand or were before. `hosts`: the services
    for which the proxy has clusters. `of`: the number of all services that the proxy could call. `why`: why services
    are sent on demand or not. `every`: the proxy is sent all services, called or not. `too_many`: the reason for
    `every` is that the proxy has called too many services. `before`: services were sent to the proxy on demand, and are
    now sent all at once. `kept`: the number of `hosts` that the proxy had before services were sent on demand."""

    hosts: tuple[str, ...]
    of: int
    why: str = ""  # why services are sent on demand, or why not
    every: bool = False  # the proxy is sent every service, called or not, though there are many
    too_many: bool = False  # the proxy has called so many services that on-demand CDS was given up
    before: bool = False  # services were sent on demand, and no longer are
    kept: int = 0  # number of `hosts` that were sent before on-demand CDS began


class PodFacts(msgspec.Struct, frozen=True):
    name: str
    namespace: str
    labels: dict[str, str]
    addresses: tuple[str, ...]
    ready: bool
    workload: str
    identity: str  # "" without a proxy, since only proxies get certificates
    proxy: Proxied
    services: tuple[ServiceFacts, ...]
    modes: tuple[Mode, ...]
    authorization: tuple[Guard, ...]
    authentication: tuple[Guard, ...]
    sidecar: Where | None
    telemetry: tuple[Where, ...]
    problems: tuple[Problem, ...]
    served: tuple[ServedFacts, ...] = ()  # of a gateway: the servers that it serves
    left_out: tuple[LeftOutFacts, ...] = ()  # of a gateway: servers of its Gateways that it does not serve
    calls: Calling | None = None  # None in a small mesh, where all services are sent


class Member(msgspec.Struct, frozen=True):
    """A pod that a service selects. `proxy`: whether it has a proxy. `modes`: its mTLS modes at the ports of the
    service. `subsets`: the subsets of the service's DestinationRules that contain the pod."""

    name: str
    ready: bool
    proxy: bool
    subsets: tuple[str, ...]
    modes: tuple[Mode, ...]  # mTLS modes at the ports of the service


class ServicePicture(msgspec.Struct, frozen=True):
    """The description of a service: its facts (`service`), its virtual `addresses`, its pods (`members`), the addresses
    of endpoints that are not pods (`written`), and the problems of its objects and pods. `external`: it is a host
    outside the mesh."""

    service: ServiceFacts
    name: str
    namespace: str
    addresses: tuple[str, ...]
    external: bool
    members: tuple[Member, ...]
    written: tuple[str, ...]  # addresses of endpoints that are not pods
    problems: tuple[Problem, ...]


def describe_pod(
    mesh: Mesh, stage: Stage, problems: Iterable[Problem], word: str, namespace: str = "", refused: Refused = _NONE
) -> PodFacts:
    """Describe the pod that `word` names, as in `Stage.find`. `refused`: rejected objects, as far as they could be
    parsed. Raises NoSuchWorkload, or Ambiguous."""
    pod = stage.instance(word, namespace)
    group = group_of(pod)
    selecting = [each for each in sorted(mesh.services(), key=_place) if _selected(mesh, each, pod)]
    services = [_service(mesh, each, group, [pod]) for each in selecting]
    proxy = _proxied(mesh, pod)
    authorization = mesh.policies(AuthorizationPolicy, group)
    authentication = mesh.policies(RequestAuthentication, group)
    peer = mesh.policies(PeerAuthentication, group)
    at_edge, unserved = served(mesh, pod), not_served(mesh, pod)
    sidecar = mesh.sidecar(group)
    called = [port.number for port in mesh.inbound_ports(group) if port.protocol is not Protocol.UDP]
    telemetry = mesh.policies(Telemetry, group)
    policies: list[Policy] = [*authorization, *authentication, *peer, *telemetry]
    involved = {
        f"Pod {pod.namespace}/{pod.name}",
        *(str(each.origin.key) for each in (pod, sidecar) if each is not None and each.origin is not None),
        *(named(each).object for each in policies),
        *(each.gateway.object for each in at_edge),
        *(str(each.origin.key) for each in (mesh.gateways_of(group) if pod.gateway else ()) if each.origin is not None),
        *(routing.object for each in at_edge for routing in each.routings),
        *(name for each in services for name in _objects(each)),
        *(name for each in selecting for name in _claiming(mesh, each, refused)),
    }
    return PodFacts(
        name=pod.name,
        namespace=pod.namespace,
        labels=dict(pod.labels),
        addresses=tuple(pod.addresses),
        ready=pod.ready,
        workload=pod.workload,
        identity=str(Identity(mesh.settings.trust_domain, pod.namespace, pod.service_account)) if pod.proxied else "",
        proxy=proxy,
        services=tuple(services),
        modes=tuple(_modes(mesh, pod, called)) if pod.meshed else (),
        authorization=tuple(map(_guard, authorization)) if pod.proxied else (),
        authentication=tuple(map(_guard, authentication)) if pod.proxied else (),
        sidecar=named(sidecar) if sidecar is not None and pod.meshed else None,
        telemetry=tuple(map(named, telemetry)) if pod.proxied else (),
        problems=(*_about(problems, involved), *unready((pod,))),
        served=at_edge,
        left_out=unserved,
        calls=_calling(mesh, stage, group) if pod.meshed else None,
    )


def _calling(mesh: Mesh, stage: Stage, group: Group) -> Calling | None:
    """The services for which proxies of the group have clusters; None in a small mesh whose proxies are sent all
    services, called or not."""
    scope = mesh.scope(group)
    telling, judged = stage.telling(group), mesh.on_demand(scope)
    if telling.every and not telling.held and judged.services <= judged.few:
        return None
    seen = {host for host in mesh.hosts() if mesh.service(host, scope) is not None}
    known = {host for name in stage.versions(group, (CLUSTER,)) if (host := called_host(name[1]))}
    too_many = telling.too_many and telling.held
    return Calling(
        tuple(sorted(known & seen)),
        len(seen),
        str(judged),
        every=telling.every,
        too_many=too_many,
        before=telling.every and telling.held,
        kept=len(telling.kept & known & seen),
    )


def describe_service(
    mesh: Mesh, problems: Iterable[Problem], word: str, namespace: str = "", refused: Refused = _NONE
) -> ServicePicture:
    """Describe the service that `word` names, as in `find_service`. `refused`: rejected objects, as far as they
    could be parsed. Raises NoSuchService, or Ambiguous."""
    service = find_service(mesh, word, namespace)
    members = members_of(mesh, service)
    viewer = group_of(members[0]) if members else group_of(Instance("", service.namespace, ()))
    facts = _service(mesh, service, viewer, members)
    described = []
    for pod in members:
        numbers = {
            number
            for port in service.ports
            if port.protocol is not Protocol.UDP and (number := pod.port_for(port)) is not None
        }
        described.append(
            Member(
                name=f"{pod.name}.{pod.namespace}",
                ready=pod.ready,
                proxy=pod.proxied,
                subsets=tuple(each.name for rule in facts.rules for each in rule.subsets if pod.name in each.pods),
                modes=tuple(_modes(mesh, pod, sorted(numbers)))[:-1] if pod.meshed else (),
            )
        )
    known = {address for pod in members for address in pod.addresses}
    written = {
        f"{each.address}:{each.port}"
        for port in service.ports
        for each in mesh.endpoints(service, port)
        if each.address not in known
    }
    involved = {*_objects(facts), *_claiming(mesh, service, refused)}
    involved |= {str(each.decided_by.object) for one in described for each in one.modes if each.decided_by is not None}
    return ServicePicture(
        service=facts,
        name=service.name,
        namespace=service.namespace,
        addresses=service.addresses,
        external=service.external,
        members=tuple(described),
        written=tuple(sorted(written)),
        problems=(*_about(problems, involved), *unready(members)),
    )


def find_service(mesh: Mesh, word: str, namespace: str = "") -> Service:
    """Find the service that `word` names: as `NAME`, `NAME.NAMESPACE`, `NAMESPACE/NAME`, a host or the beginning of
    a host. Raises NoSuchService, or Ambiguous."""
    wanted = word.removeprefix("svc/").removeprefix("service/").lower().rstrip(".")
    before, slash, after = wanted.partition("/")
    if slash:
        namespace, wanted = before, after
    near = sorted((each for each in mesh.services() if namespace in ("", each.namespace)), key=_place)
    for fits in (_has_host, _has_name, _has_short_host):
        services = [each for each in near if fits(each, wanted)]
        places = {each.namespace for each in services}
        if fits is _has_name and len(places) > 1:  # hosts are not ambiguous: a host means the same in every namespace
            raise in_several_namespaces(wanted, places)
        if services:
            return services[0]
    raise NoSuchService(word, (name for each in mesh.services() for name in (each.name, each.host)))


def members_of(mesh: Mesh, service: Service) -> list[Instance]:
    """The pods that the service selects, ready or not."""
    return [pod for pod in mesh.instances(service.namespace) if _selected(mesh, service, pod)]


def unready(pods: Iterable[Instance], behind: str = "") -> Iterator[Problem]:
    """Yield a problem for each pod that is not ready. `behind`: the host that is called, for the message."""
    for pod in pods:
        if pod.ready:
            continue
        of_cluster = pod.origin is not None and pod.origin.key.kind == "Pod"
        here = f"weft ps, weft logs {pod.workload or pod.name}"
        look = f"kubectl describe pod {pod.name} -n {pod.namespace}" if of_cluster else here
        is_where = f"is a pod of {behind} and is not ready" if behind else "is not ready"
        what = f"{pod.name}.{pod.namespace} {is_where}: it gets no requests"
        yield Problem(where_of(pod.origin), what, f"find out why: {look}", Severity.WARNING)


def objects_about(mesh: Mesh, service: Service, refused: Refused) -> set[str]:
    """The names of all objects about a service: the service itself, other objects that declare the same host, and
    the DestinationRules and VirtualServices for the host. Rejected objects (`refused`) that name the host are
    included."""
    members = members_of(mesh, service)
    viewer = group_of(members[0]) if members else group_of(Instance("", service.namespace, ()))
    return {*_objects(_service(mesh, service, viewer, members)), *_claiming(mesh, service, refused)}


def decided(mesh: Mesh, pod: Instance, port: int = 0) -> Where | None:
    """The PeerAuthentication that decides the mTLS mode at a port of a pod; None for the default. Port 0 stands for
    all ports without a mode of their own."""
    policies = mesh.policies(PeerAuthentication, group_of(pod))
    policy = decider(policies, mesh.settings.root_namespace, port)
    return named(policy) if policy is not None else None


def why_injected(written: Workload) -> str:
    """Why the Workload `written` has a proxy or none, as text: its inject label or annotation decides. Without either,
    it has a proxy."""
    for place, values in (("label", written.labels), ("annotation", written.annotations)):
        if INJECT_LABEL in dict(values):
            return f"its {place} {INJECT_LABEL} is {dict(values)[INJECT_LABEL]}"
    return "a Workload has one by default"


def _service(mesh: Mesh, service: Service, viewer: Group, pods: list[Instance]) -> ServiceFacts:
    return ServiceFacts(
        host=service.host,
        where=named(service),
        ports=tuple(_ports(service, pods)),
        rules=tuple(rules(mesh, service, viewer, pods)),
        routings=tuple(routings(mesh, service, viewer, pods)),
    )


def _ports(service: Service, pods: list[Instance]) -> Iterator[Port]:
    for port in service.ports:
        numbers = [number for pod in pods if (number := pod.port_for(port)) is not None]
        target = numbers[0] if numbers else port.target or port.number
        yield Port(port.number, port.name, port.protocol, target, served=bool(numbers) or not pods)


def _modes(mesh: Mesh, pod: Instance, numbers: Iterable[int]) -> Iterator[Mode]:
    """The mTLS mode at each port in `numbers` and each port with its own mode, and last the mode at all other ports."""
    modes = mesh.peer_modes(pod.namespace, pod.labels)
    for number in dict.fromkeys((*numbers, *(number for number, _ in modes.ports))):
        yield Mode(number, modes.at(number), decided(mesh, pod, number), pod.intercepts(number))
    yield Mode(0, modes.mode, decided(mesh, pod))


def _guard(policy: AuthorizationPolicy | RequestAuthentication) -> Guard:
    if policy.refused:
        return Guard(named(policy), "rejected: it denies every request")
    if isinstance(policy, RequestAuthentication):
        issuers = ", ".join(rule.issuer or "any issuer" for rule in policy.rules)
        return Guard(named(policy), f"accepts tokens of {issuers}" if issuers else "accepts no token")
    count = len(policy.rules)
    counted = {0: "no rule: it matches nothing", 1: "1 rule"}.get(count, f"{count} rules")
    says = f"{policy.action}, {counted}"
    if policy.provider:
        says += f", {policy.provider} decides"
    return Guard(named(policy), f"{says}, a dry run" if policy.dry_run else says)


def _proxied(mesh: Mesh, pod: Instance) -> Proxied:
    origin = pod.origin
    written = next((each for each in mesh.get(origin.key) if isinstance(each, Workload)), None) if origin else None
    if pod.gateway:
        return Proxied(
            True, "it is a gateway: a proxy without an application", named(written) if written is not None else None
        )
    if written is not None:
        return Proxied(pod.meshed, why_injected(written), named(written))
    if pod.is_entry:
        return Proxied(pod.meshed, "it is a WorkloadEntry: an address, not a pod", named(pod))
    if pod.meshed:
        return Proxied(True, "it was injected when the pod was created")
    return Proxied(False, "it was not injected when the pod was created; weft x check-inject shows why")


def _selected(mesh: Mesh, service: Service, pod: Instance) -> bool:
    if service.namespace != pod.namespace:
        return False
    if service.selector:
        return selects(service.selector, pod.labels)
    # A Service without a selector selects the pods that its EndpointSlices name.
    name = f"{pod.namespace}/{pod.name}"
    return any(each.instance == name for port in service.ports for each in mesh.endpoints(service, port))


def _objects(facts: ServiceFacts) -> Iterator[str]:
    yield facts.where.object
    yield from (rule.where.object for rule in facts.rules)
    yield from (routing.where.object for routing in facts.routings)


def _claiming(mesh: Mesh, service: Service, refused: Refused) -> Iterator[str]:
    """The names of the objects that declare the service's host, and of rejected objects (`refused`) that name this
    host."""
    for each in mesh.services():
        if each.host == service.host and each.origin is not None:
            yield str(each.origin.key)
    for key, meant in refused.items():
        for value in meant:
            if isinstance(value, VirtualService):
                hosts = value.hosts
            elif isinstance(value, (DestinationRule, Service)):
                hosts = (value.host,)
            else:
                continue
            if any(host_covers(host, service.host) for host in hosts):
                yield str(key)


def _about(problems: Iterable[Problem], objects: set[str]) -> tuple[Problem, ...]:
    return tuple(problem for problem in problems if problem.where.object in objects)


def _place(service: Service) -> tuple[str, str]:
    return (service.namespace, service.host)


def _has_host(service: Service, word: str) -> bool:
    return service.host == word


def _has_name(service: Service, word: str) -> bool:
    return word in (service.name, f"{service.name}.{service.namespace}")


def _has_short_host(service: Service, word: str) -> bool:
    return "." in word and service.host.startswith(f"{word}.")
