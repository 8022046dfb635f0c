"""Index of services, instances and EndpointSlices, and of the instances that belong to each service. It is updated
change by change, so that an added or removed pod costs the same in a mesh of ten services as in one of ten
thousand.

`mesh.py` owns it and adds rules and policies.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import TypeVar

import msgspec

from weft.mesh.claims import Claims
from weft.mesh.endpoint_slices import Slices
from weft.mesh.service_entries import ServiceEntries, is_entry
from weft.mesh.service_members import Members, Standing, all_secured, joined_standing, written_standing
from weft.mesh.virtual_ranges import VirtualRanges
from weft.model.endpoint import Off
from weft.model.endpoint_slice import EndpointSlice, SliceEndpoint
from weft.model.instance import Instance
from weft.model.names import Labels, selects
from weft.model.service import Protocol, Service, ServicePort

_Selection = tuple[str, str, Labels]  # a host, and namespace and selector of one of its claims
_Pair = tuple[str, tuple[str, str]]  # a namespace and one label
# An instance's profile: its named ports, protocols, whether it is a WorkloadEntry, whether it is meshed, its service
# account, its published ports.
_Profile = tuple[tuple[tuple[str, int], ...], tuple[tuple[int, Protocol], ...], bool, bool, str, tuple[int, ...]]

_Place = TypeVar("_Place")
_Held = TypeVar("_Held")


class SliceMember(msgspec.Struct, frozen=True):
    """One endpoint of a service, from its EndpointSlices. `instance`: its pod; None if that is unknown. `addresses`:
    the addresses of the endpoint, two for a dual-stack pod. `port`: the port number at which the endpoint is called."""

    instance: Instance | None
    addresses: tuple[str, ...]
    port: int


class Registry:
    def __init__(self) -> None:
        self.services: Claims[Service] = Claims()  # services by host
        self.virtual = VirtualRanges()
        self.asking_where = 0  # number of services with a trafficDistribution
        self._entries = ServiceEntries()
        self._selectors: dict[_Pair, set[str]] = defaultdict(set)  # hosts by one label of their selector
        self._instances: dict[str, dict[str, Instance]] = defaultdict(dict)  # namespace → key → instance
        self._alike: dict[tuple[str, Labels], dict[str, Instance]] = defaultdict(dict)  # instances with the same labels
        self._profiles: dict[tuple[str, Labels], Counter[_Profile]] = defaultdict(Counter)
        self._label_sets: dict[_Pair, set[Labels]] = defaultdict(set)  # label sets that contain this label
        self._at: dict[tuple[str, str], dict[str, Instance]] = defaultdict(dict)  # pods by namespace and address
        self._members: dict[_Selection, Members] = {}  # instances that a service selects
        self._slices = Slices()
        self._sliced: dict[tuple[str, str], Service] = {}  # Kubernetes Services by namespace and name

    # Services

    def add(self, service: Service) -> None:
        if is_entry(service):
            self._replace(*self._entries.add(service))
        else:
            self._add(service)

    def remove(self, service: Service) -> None:
        if is_entry(service):
            self._replace(*self._entries.remove(service))
        else:
            self._remove(service)

    def _replace(self, gone: Iterable[Service], new: Iterable[Service]) -> None:
        for service in gone:
            self._remove(service)
        for service in new:
            self._add(service)

    def _add(self, service: Service) -> None:
        self.services.add(service.host, service)
        self.virtual.add(service)
        self.asking_where += service.distribution is not None
        if service.sliced:
            self._sliced[(service.namespace, service.name)] = service
        if service.selector:
            self._selectors[(service.namespace, service.selector[0])].add(service.host)
            self._members[_selection(service)] = members = Members()
            for labels in self._label_sets.get((service.namespace, service.selector[0]), ()):
                if selects(service.selector, labels):
                    for instance in self._alike[(service.namespace, labels)].values():
                        members.put(instance)

    def _remove(self, service: Service) -> None:
        self.services.discard(service.host, service)
        self.virtual.remove(service)
        self.asking_where -= service.distribution is not None
        if self._sliced.get((service.namespace, service.name)) is service:
            del self._sliced[(service.namespace, service.name)]
        if service.selector:
            # Another object of the namespace may claim the same host, as while a ServiceEntry is renamed.
            left = [each for each in self.services.to(service.host) if each.namespace == service.namespace]
            if all(each.selector != service.selector for each in left):
                del self._members[_selection(service)]
            if not any(each.selector and each.selector[0] == service.selector[0] for each in left):
                _discard(self._selectors, (service.namespace, service.selector[0]), service.host)

    # Instances

    def move(self, before: Instance | None, after: Instance | None) -> dict[Service, bool]:
        """Replace an instance. `before` is None for a new instance, `after` for a deleted one. Returns every service
        whose endpoints or `Standing` may have changed, each with whether its `Standing` has."""
        both = tuple(instance for instance in (before, after) if instance is not None)
        naming = {service for instance in both for service in self._naming(instance)}
        concerned = naming.union(service for instance in both for service in self.selecting(instance))
        standings = {service: self.standing(service) for service in concerned}
        for service in concerned:
            members = self._members.get(_selection(service))
            if members is None:
                continue
            if before is not None:
                members.discard(before.key)
            if after is not None and service.selector and selects(service.selector, after.labels):
                members.put(after)
        if before is not None:
            self._forget(before)
        if after is not None:
            self._keep(after)
        if before is not None and after is not None and msgspec.structs.replace(before, ready=after.ready) == after:
            naming = set()  # EndpointSlices, not pods, decide readiness
        by_slice = all(instance.by_slice for instance in both)
        return {
            service: changed
            for service, standing in standings.items()
            if (changed := self.standing(service) != standing) or service in naming or not (service.sliced and by_slice)
        }

    def profiles(self, namespace: str, labels: Labels) -> frozenset[_Profile]:
        """The distinct profiles (`_Profile`: ports, account and others) of the instances with these labels. A new
        instance with one of these profiles changes only the config of its callers, not the config of its own
        group of proxies."""
        return frozenset(self._profiles.get((namespace, labels), ()))

    def samples(self, namespace: str, labels: Labels) -> list[Instance]:
        """One instance with these labels for each distinct profile (`_Profile`)."""
        alike = self._alike.get((namespace, labels), {})
        if len(self._profiles.get((namespace, labels), ())) <= 1:
            return list(alike.values())[:1]
        return list({_profile(instance): instance for instance in reversed(alike.values())}.values())[::-1]

    def instances(self, namespace: str) -> Iterable[Instance]:
        return self._instances.get(namespace, {}).values()

    def selecting(self, instance: Instance) -> list[Service]:
        """The services of the instance's namespace that select it."""
        hosts = {host for pair in instance.labels for host in self._selectors.get((instance.namespace, pair), ())}
        return [
            service
            for host in hosts
            for service in self.services.to(host)
            if service.namespace == instance.namespace
            and service.selector
            and selects(service.selector, instance.labels)
        ]

    def _naming(self, instance: Instance) -> Iterator[Service]:
        """The services with an EndpointSlice that lists the instance, or one of its addresses."""
        if not instance.by_slice:
            return
        for name in self._slices.naming(instance.namespace, (instance.name, *instance.addresses)):
            service = self._sliced.get((instance.namespace, name))
            if service is not None:
                yield service

    def _keep(self, instance: Instance) -> None:
        alike = (instance.namespace, instance.labels)
        self._instances[instance.namespace][instance.key] = instance
        if alike not in self._alike:
            for pair in instance.labels:
                self._label_sets[(instance.namespace, pair)].add(instance.labels)
        self._alike[alike][instance.key] = instance
        self._profiles[alike][_profile(instance)] += 1
        for address in instance.addresses if instance.by_slice else ():
            self._at[(instance.namespace, address)][instance.key] = instance

    def _forget(self, instance: Instance) -> None:
        alike = (instance.namespace, instance.labels)
        _pop(self._instances, instance.namespace, instance.key)
        _pop(self._alike, alike, instance.key)
        if alike not in self._alike:
            for pair in instance.labels:
                _discard(self._label_sets, (instance.namespace, pair), instance.labels)
        profiles, profile = self._profiles[alike], _profile(instance)
        profiles[profile] -= 1
        if not profiles[profile]:
            del profiles[profile]
            if not profiles:
                del self._profiles[alike]
        for address in instance.addresses if instance.by_slice else ():
            _pop(self._at, (instance.namespace, address), instance.key)

    # EndpointSlices

    def move_slice(self, before: EndpointSlice | None, after: EndpointSlice | None) -> dict[Service, bool]:
        """Replace an EndpointSlice. `before` is None for a new slice, `after` for a deleted one. Returns, as `move`
        does, the services of the old and new slice, each with whether its `Standing` changed."""
        places = {(each.namespace, each.service) for each in (before, after) if each is not None}
        standings = {service: self.standing(service) for place in places if (service := self._sliced.get(place))}
        if before is not None:
            self._slices.remove(before)
        if after is not None:
            self._slices.add(after)
        return {service: self.standing(service) != standing for service, standing in standings.items()}

    def answers(self, service: Service, port: ServicePort) -> list[SliceMember]:
        """The endpoints of a service port from its EndpointSlices: the ready endpoints or, if there are none, those
        that are terminating and still serving, as in kube-proxy. The two addresses of a dual-stack pod are one
        endpoint."""
        ready: dict[tuple[str, int], tuple[Instance | None, list[str]]] = {}
        draining: dict[tuple[str, int], tuple[Instance | None, list[str]]] = {}
        for each in self._slices.of(service.namespace, service.name) if service.sliced else ():
            number = each.port(port.name)
            if not number:
                continue
            for endpoint in each.endpoints:
                fits = ready if endpoint.ready or service.publish_not_ready else draining
                if (fits is ready or endpoint.draining) and self._is_there(each, endpoint):
                    instance = self._behind(each, endpoint)
                    key = (instance.key if instance else endpoint.address, number)
                    fits.setdefault(key, (instance, []))[1].append(endpoint.address)
        return [
            SliceMember(instance, _in_order(instance, listed), number)
            for (_, number), (instance, listed) in (ready or draining).items()
        ]

    def _is_there(self, each: EndpointSlice, endpoint: SliceEndpoint) -> bool:
        """Whether an endpoint of the slice `each` is usable. An endpoint with a pod name is used only if the pod, and
        so its identity, is known. It is not used if the pod was deleted or replaced by another of the same name,
        whatever the slice still lists."""
        if not endpoint.pod:
            return True
        pod = self._instances.get(each.namespace, {}).get(endpoint.pod)
        return pod is not None and (endpoint.address in pod.addresses or not each.managed)

    def _behind(self, each: EndpointSlice, endpoint: SliceEndpoint) -> Instance | None:
        """The pod of an endpoint of the slice `each`; None if it is unknown or ambiguous."""
        if endpoint.pod:
            pod = self._instances.get(each.namespace, {}).get(endpoint.pod)
            return pod if pod is not None and endpoint.address in pod.addresses else None
        there = self._at.get((each.namespace, endpoint.address), {})
        return next(iter(there.values())) if len(there) == 1 else None  # hostNetwork pods share the node's address

    def _others(self, service: Service) -> list[Instance | None]:
        """The instances of those endpoints of a service that its EndpointSlices list and that its selector did not
        select, such as endpoints that a person added. None for an endpoint without a known pod."""
        return [
            self._behind(each, endpoint)
            for each in (self._slices.of(service.namespace, service.name) if service.sliced else ())
            if not (each.managed and service.selector)
            for endpoint in each.endpoints
            if self._is_there(each, endpoint)
        ]

    # Members of a service

    def members(self, service: Service) -> Members | None:
        """The instances that a service selects. None if the service has no selector: its endpoints are listed in a
        ServiceEntry or in EndpointSlices."""
        return self._members.get(_selection(service))

    def standing(self, service: Service) -> Standing:
        members, others = self.members(service), self._others(service)
        if others:
            return joined_standing(members.standing(service) if members is not None else None, others, service)
        return members.standing(service) if members is not None else written_standing(service)

    def secured(self, service: Service, off: Off | None) -> tuple[int, ...]:
        """Return the service ports at which every endpoint accepts the mesh's TLS. `off`: a function (labels, port)
        that returns whether policies disable mTLS there; None if they disable it nowhere."""
        members, others = self.members(service), self._others(service)
        if members is None:
            return all_secured(others, service, off) if others else ()
        secured = members.secured(service, off)
        return tuple(number for number in secured if number in all_secured(others, service, off))


def _selection(service: Service) -> _Selection:
    return (service.host, service.namespace, service.selector or ())


def _profile(instance: Instance) -> _Profile:
    return (
        instance.ports,
        instance.protocols,
        instance.is_entry,
        instance.meshed,
        instance.service_account,
        instance.published,
    )


def _in_order(instance: Instance | None, listed: list[str]) -> tuple[str, ...]:
    return tuple(listed) if instance is None else tuple(each for each in instance.addresses if each in listed)


def _pop(index: dict[_Place, dict[str, Instance]], place: _Place, key: str) -> None:
    index[place].pop(key, None)
    if not index[place]:
        del index[place]


def _discard(index: dict[_Pair, set[_Held]], place: _Pair, value: _Held) -> None:
    index[place].discard(value)
    if not index[place]:
        del index[place]
