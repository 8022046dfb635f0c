"""A mesh as `weft.explain` sees it: workloads by address, name resolution, and the config of each proxy.

Input: a mesh, and for a running mesh the config that its proxies have. Groups that are not served are translated on
first use, by the push code of the control plane. Rule: a stage changes nothing, and the mesh must not change while
the stage is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

from weft.base.ambiguous import in_several_namespaces
from weft.base.problem import Problem, Where
from weft.base.suggest import did_you_mean
from weft.control.problems import Problems
from weft.control.push.push import Push
from weft.explain.world import EnvoyResources, ExplainedWorkload, NoPort, Unseen
from weft.inspect.closed_servers import closed, unsent
from weft.inspect.reasons.part import sources
from weft.mesh.calls import Calls
from weft.mesh.mesh import Mesh
from weft.model.endpoint import Endpoint
from weft.model.group import Group, ProxyKind, group_of
from weft.model.identity import Identity
from weft.model.instance import Instance
from weft.model.on_demand import EVERYTHING, Telling
from weft.model.scope import exported
from weft.model.service import Resolution, Service
from weft.model.workload import Workload as Written
from weft.translate.lookup import Found, NameLookup, NotOurs
from weft.translate.names import CHOSEN, held
from weft.xds.snapshot import Snapshots
from weft.xds.table import Resource
from weft.xds.types import CLUSTER, ENDPOINT, LISTENER, ROUTE, SECRET

Listening = Callable[[Instance], frozenset[int] | None]

_TYPES = (LISTENER, ROUTE, CLUSTER, ENDPOINT)


class NoSuchWorkload(Exception):
    def __init__(self, word: str, known: Iterable[str], elsewhere: Iterable[str] = ()) -> None:
        """`word`: the workload or pod that was looked for. `known`: the names that exist, for a hint. `elsewhere`:
        workloads with the name `word` in other namespaces, as `NAME.NAMESPACE`."""
        names, others = sorted(set(known)), sorted(set(elsewhere))
        listed = ", ".join(names[:8]) + (", …" if len(names) > 8 else "")
        what = f"there is no workload or pod `{word}`{' in that namespace' if others else ''}"
        super().__init__(what)
        hint = did_you_mean(word, names) or (f"there are {listed}" if listed else "")
        if others:
            hint = f"did you mean `{'` or `'.join(others[:3])}`?"
        self.problem = Problem(Where(), what, hint)


class NoProxy(Exception):
    def __init__(self, pod: str) -> None:
        what = f"the pod {pod} has no proxy"
        super().__init__(what)
        self.problem = Problem(Where(), what, f"the reason is shown by: weft describe pod {pod}")


class Stage:
    """A mesh at one moment, as `weft.explain` and the debug pages read it.

    `served`: the config that the proxies of a running mesh have; groups without such config are translated here.
    `listening`: returns the ports on which a pod's program listens, where they are known. `calls`: the services that
    groups have called, for on-demand CDS; without it, every group gets all services.
    """

    def __init__(
        self,
        mesh: Mesh,
        served: Snapshots | None = None,
        listening: Listening | None = None,
        calls: Calls | None = None,
    ) -> None:
        self.mesh = mesh
        self._listening = listening
        self._served = served
        self._own = Snapshots()
        calls = Calls(everything=True) if calls is None else calls.copy()
        # Not logged here: the control plane has logged the problems of its mesh.
        self._push = Push(mesh, self._own, Problems(aloud=False), calls=calls)
        self._resources: dict[Group, EnvoyResources] = {}
        self._instances = [value for _, values in mesh.values() for value in values if isinstance(value, Instance)]
        self._at = {address: each for each in self._instances for address in each.addresses}
        self._by_name = {_name(each): each for each in self._instances}
        self._names = NameLookup(mesh.services(), self._instances, mesh.settings.domain)
        self._workloads: dict[str, ExplainedWorkload] = {}
        self._written = {
            (value.namespace, value.name): value
            for _, values in mesh.values()
            for value in values
            if isinstance(value, Written)
        }

    # For `weft.explain` (weft.explain.world.World)

    def workload(self, name: str) -> ExplainedWorkload | None:
        return self._workloads.get(name)

    def at(self, address: str) -> ExplainedWorkload | None:
        instance = self._at.get(address)
        return self._as_workload(instance) if instance is not None else None

    def behind(self, address: str, port: int) -> tuple[tuple[str, int], ...] | None:
        """The addresses and ports of the endpoints behind the address of a service, to which the network forwards
        calls: kube-proxy on a cluster, the bridge in a local mesh. None if the address is not that of a service."""
        for service in self.mesh.services_at(address):
            if service.sliced or service.resolution is Resolution.STATIC:
                called = service.port(port)
                endpoints = self.mesh.endpoints(service, called) if called is not None else ()
                sent = tuple((to, each.port) for each in endpoints if (to := _alike(address, each)))
                # Addresses of a ServiceEntry may be real. On a cluster, nothing forwards such an address to other
                # endpoints.
                if _is_of_service(service) or (sent and self._written):
                    return sent
        return None

    def no_port(self, address: str, port: int) -> NoPort | None:
        """Return why a call to this address and port fails, if the Service at the address does not have the port. None
        if it has the port, or if no Service has the address. A ServiceEntry does not count: its addresses may be real
        ones, which may have any port."""
        for service in self.mesh.services():
            if address in service.addresses and _is_of_service(service) and service.port(port) is None:
                return NoPort(lacking(service, port), sources(service.origin))
        return None

    def unseen(self, caller: ExplainedWorkload, address: str, port: int) -> Unseen | None:
        group = self.group_of(caller.name)
        if group is None or group.kind is not ProxyKind.SIDECAR or self.is_shown(caller, address, port):
            return None
        for service in self.mesh.services_at(address):
            if service.port(port) is not None:
                whose = f"{address}:{port} is {service.host}"
                if not exported(service.export_to, owner=service.namespace, viewer=group.namespace):
                    words = ", ".join(service.export_to)
                    why = f"{whose}, which is exported to `{words}` only, so not to {caller.name}"
                    return Unseen(why, sources(service.origin))
                sidecar = self.mesh.sidecar(group)
                name = f"Sidecar {sidecar.namespace}/{sidecar.name}" if sidecar is not None else "its Sidecar"
                why = f"{whose}, which is hidden from {caller.name}: {name} does not import this host and port"
                return Unseen(why, sources(sidecar.origin if sidecar is not None else None))
        return None

    def is_shown(self, caller: ExplainedWorkload, address: str, port: int) -> bool:
        group = self.group_of(caller.name)
        scope = self.mesh.scope(group) if group is not None else None
        return scope is None or any(
            each.number == port for service in self.mesh.services_at(address) for each in scope.ports(service)
        )

    def uncalled(self, caller: ExplainedWorkload, cluster: str) -> str:
        group = self.group_of(caller.name)
        _, port, subset, host = cluster.split("|") if cluster.count("|") == 3 else ("", "0", "", "")
        service = self.mesh.service(host, self.mesh.scope(group)) if group is not None else None
        if group is None or service is None:
            return ""
        rule, subset = self.mesh.destination_rule(host, service, group), subset.removeprefix(CHOSEN)
        return unsent(self.mesh, group, rule, int(port), subset) if rule is not None else ""

    def resolve(self, host: str, caller: ExplainedWorkload, *, by_proxy: bool = False) -> tuple[str, ...]:
        namespace, name = caller.name.rpartition(".")[2], host.lower().rstrip(".")
        if by_proxy:
            answer = self._names.look_up_for_proxy(name, namespace)
            return (host,) if isinstance(answer, NotOurs) else answer.addresses if isinstance(answer, Found) else ()
        answer = self._names.look_up(name, namespace)
        return answer.addresses if isinstance(answer, Found) else ()

    def after_call(self, caller: ExplainedWorkload, address: str) -> EnvoyResources:
        group = self.group(caller.name)
        self._push.join(group)
        self._push.call(group, held(address), soon=False)
        return self._read(self._own, group)

    def on_demand(self, caller: ExplainedWorkload) -> str:
        judged = self.mesh.on_demand(self.mesh.scope(self.group(caller.name)))
        return (
            str(judged)
            if judged.on
            else "its proxy was on demand before, and still holds such calls until it is restarted"
        )

    def intercepts(self, workload: ExplainedWorkload, address: str, port: int, *, inbound: bool) -> bool:
        instance = self._at.get(next(iter(workload.addresses), ""))
        if inbound:
            return instance is None or instance.intercepts(port)
        to = ip_address(address)
        written = self._written.get((instance.namespace, instance.workload)) if instance is not None else None
        return not to.is_loopback and (written is None or _goes_out_by_proxy(written, to, port))

    # For commands and debug pages

    def find(self, word: str, namespace: str = "") -> str:
        """The name of a pod in this stage. `word`: `POD` or `WORKLOAD`, with `.NAMESPACE` or `NAMESPACE/` where
        needed, or `deploy/WORKLOAD`. Raises NoSuchWorkload, or Ambiguous."""
        return self._as_workload(self.instance(word, namespace)).name

    def instance(self, word: str, namespace: str = "") -> Instance:
        """The Instance (pod) that `word` names. `word` may have any of the forms that `find` accepts. Raises
        NoSuchWorkload, or Ambiguous."""
        wanted = word.removeprefix("deploy/").removeprefix("deployment/").removeprefix("pod/")
        if "/" in wanted:
            namespace, _, wanted = wanted.partition("/")
        for name, within in ((wanted, namespace), (wanted.rpartition(".")[0], wanted.rpartition(".")[2])):
            instances = [each for each in self._called(name) if within in ("", each.namespace)]
            if instances:
                # Prefer a pod of this name to a pod of a workload of this name, and a ready pod to one that is not.
                best = min(instances, key=lambda each: (*_unlike(each, name), not each.ready, each.name))
                places = {each.namespace for each in instances if _unlike(each, name) == _unlike(best, name)}
                if len(places) > 1:
                    raise in_several_namespaces(name, places)
                return best
        short = wanted if self._called(wanted) else wanted.rpartition(".")[0]
        elsewhere = (f"{short}.{each.namespace}" for each in self._called(short))
        raise NoSuchWorkload(word, (each.workload or each.name for each in self._instances), elsewhere)

    def _called(self, name: str) -> list[Instance]:
        named = ((each, (each.name, each.workload, dict(each.labels).get("app", ""))) for each in self._instances)
        return [each for each, names in named if name and name in names]

    def resources(self, group: Group, types: Iterable[str] = _TYPES) -> Mapping[str, Mapping[str, bytes]]:
        """The resources that a proxy of the group is sent, by type and name. `types`: the type URLs to include."""
        snapshots = self._snapshots(group)
        return {
            type_url: {name: each.body for name, each in snapshots.resources(group, type_url).items()}
            for type_url in types
        }

    def named_resources(self, group: Group, type_url: str) -> Mapping[str, Resource]:
        """The resources of a type that a proxy of the group is sent, with their versions, by name."""
        return self._snapshots(group).resources(group, type_url)

    def versions(self, group: Group, types: Iterable[str] = _TYPES) -> dict[tuple[str, str], str]:
        """The version (a digest) of each resource that a proxy of the group is sent, by type and name. `types`: the
        type URLs to include."""
        snapshots = self._snapshots(group)
        return {
            (type_url, name): each.version
            for type_url in types
            for name, each in snapshots.resources(group, type_url).items()
        }

    def telling(self, group: Group) -> Telling:
        """How the proxies of the group are sent services: all at once, or each service on demand at its first call."""
        self._snapshots(group)
        return self._push.calls.telling(group) or EVERYTHING

    def group(self, name: str) -> Group:
        """The group of a pod's proxy, by the pod's name in this stage. Raises NoSuchWorkload if there is no such pod,
        NoProxy if the pod has no proxy."""
        instance = self._by_name.get(name)
        if instance is not None:
            if not instance.proxied:
                raise NoProxy(name)
            return group_of(instance)
        raise NoSuchWorkload(name, (_name(each) for each in self._instances if each.proxied))

    def group_of(self, name: str) -> Group | None:
        """The group of a pod's proxy, by the pod's name in this stage; None if there is no such pod with a proxy."""
        instance = self._by_name.get(name)
        return group_of(instance) if instance is not None and instance.proxied else None

    def service(self, host: str, namespace: str) -> Service | None:
        """The service to which a host name resolves for pods of `namespace`, even if the service is not visible to
        them; None if there is none."""
        for name in self._names.readings(host.lower().rstrip("."), namespace):
            services = [each for each in self.mesh.services() if each.host == name]
            if services:
                return min(services, key=lambda each: each.namespace != namespace)
        return None

    def services(self) -> Iterable[Service]:
        return self.mesh.services()

    @property
    def deserted(self) -> bool:
        """Whether there is no pod at all."""
        return not self._instances

    def groups(self) -> dict[Group, list[str]]:
        """The groups of all proxies, each with the names of its pods."""
        groups: dict[Group, list[str]] = {}
        for each in sorted(self._instances, key=_name):
            if each.proxied:
                groups.setdefault(group_of(each), []).append(_name(each))
        return groups

    def without_proxy(self) -> list[str]:
        """The names of the pods without a proxy; first those in namespaces where other pods have a proxy."""
        meshed = {each.namespace for each in self._instances if each.proxied}
        bare = (each for each in self._instances if not each.proxied)
        return [_name(each) for each in sorted(bare, key=lambda each: (each.namespace not in meshed, _name(each)))]

    def _snapshots(self, group: Group) -> Snapshots:
        if self._served is not None and self._served.resources(group, LISTENER):
            return self._served
        self._push.join(group)
        return self._own

    def _as_workload(self, instance: Instance) -> ExplainedWorkload:
        name = _name(instance)
        workload = self._workloads.get(name)
        if workload is None:
            trust_domain = self.mesh.settings.trust_domain
            identity = str(Identity(trust_domain, instance.namespace, instance.service_account))
            workload = self._workloads[name] = ExplainedWorkload(
                name,
                tuple(instance.addresses),
                identity if instance.proxied else "",
                self._of_group(group_of(instance)) if instance.proxied else None,
                self._ports(instance),
                self._doors(instance) if instance.gateway else None,
                closed(self.mesh, group_of(instance)) if instance.gateway else (),
                self._published(instance),
                self._unread(group_of(instance)) if instance.gateway else {},
            )
        return workload

    def _doors(self, instance: Instance) -> dict[int, int]:
        servers = self.mesh.scope(group_of(instance)).servers or ()
        return {server.server.port.number: server.listens for server in reversed(servers)}

    def _published(self, instance: Instance) -> dict[int, int]:
        written = self._written.get((instance.namespace, instance.workload))
        return {each.host_port: each.port for each in written.publish} if written is not None else {}

    def _unread(self, group: Group) -> dict[str, str]:
        snapshots = self._snapshots(group)
        return {
            name: refused.detail
            for (type_url, name), refused in snapshots.rejected(group).items()
            if type_url == SECRET and snapshots.accepted(group, SECRET, name) is None
        }

    def _ports(self, instance: Instance) -> frozenset[int] | None:
        """The ports on which the pod's program listens; None if they are not known. Also None for a pod whose
        Sidecar has an ingress, because the ports do not matter there: an ingress listener may forward to
        127.0.0.1 or to a Unix socket."""
        sidecar = self.mesh.sidecar(group_of(instance))
        if self._listening is None or (sidecar is not None and sidecar.ingress):
            return None
        return self._listening(instance)

    def _of_group(self, group: Group) -> EnvoyResources:
        resources = self._resources.get(group)
        if resources is None:
            resources = self._resources[group] = self._read(self._snapshots(group), group)
        return resources

    def _read(self, snapshots: Snapshots, group: Group) -> EnvoyResources:
        types = ((url, snapshots.resources(group, url)) for url in _TYPES)
        return EnvoyResources.from_bytes((url, each.body) for url, resources in types for each in resources.values())


def lacking(service: Service, port: int) -> str:
    numbers = ", ".join(str(each.number) for each in service.ports)
    return f"{service.name} has no port {port} ({f'it has {numbers}' if numbers else 'it has none'})"


def _alike(address: str, endpoint: Endpoint) -> str:
    """The address of the endpoint that is of the same IP family (IPv4 or IPv6) as `address`; "" if the endpoint has
    none of that family."""
    is_six = ":" in address
    return next((each for each in (endpoint.address, *endpoint.extra_addresses) if (":" in each) == is_six), "")


def _is_of_service(service: Service) -> bool:
    return not service.headless and (service.origin is None or service.origin.key.kind == "Service")


def _goes_out_by_proxy(written: Written, to: IPv4Address | IPv6Address, port: int) -> bool:
    """Whether the pod's proxy intercepts an outbound connection to the address `to`. `written`: the pod's ports and
    ranges that are included and excluded. Decides like the iptables rules in the pod's network namespace
    (`weft.netns.iptables`)."""
    if port in written.exclude_outbound_ports or _within(to, written.exclude_outbound_ranges):
        return False
    ranges = written.include_outbound_ranges
    return ranges == "*" or port in written.include_outbound_ports or _within(to, ranges.split(","))


def _within(address: IPv4Address | IPv6Address, ranges: Iterable[str]) -> bool:
    return any(address in ip_network(each.strip(), strict=False) for each in ranges if each.strip())


def _unlike(instance: Instance, name: str) -> tuple[bool, bool]:
    """Sort key for pods that match `name`, the best match first: pods with this name, then pods of a workload with this
    name, then all others."""
    return instance.name != name, instance.workload != name


def _name(instance: Instance) -> str:
    return f"{instance.name}.{instance.namespace}"
