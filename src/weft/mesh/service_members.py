"""The instances of a service, with two summaries that every pod change needs: the ports at which all instances have
a proxy, and the service accounts of the instances. Updating the summaries costs the same for ten pods and ten
thousand.

This is possible because in almost all pods a proxy intercepts all ports. Only the other pods (`_odd`) are checked one
by one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec

from weft.model.endpoint import Off
from weft.model.instance import Instance
from weft.model.service import Resolution, Service, ServicePort


class Standing(msgspec.Struct, frozen=True):
    """The properties of a service's endpoints that callers' config depends on, beyond the endpoints themselves.
    `meshed`: the service ports at which every instance has a proxy of this mesh. `accounts`: the service accounts of
    all instances, ready or not, in the service's namespace."""

    meshed: tuple[int, ...] = ()
    accounts: tuple[str, ...] = ()


class Members:
    """The instances that a service's selector selects, by their keys."""

    def __init__(self) -> None:
        self._all: dict[str, Instance] = {}
        self._odd: dict[str, Instance] = {}
        self._accounts: Counter[str] = Counter()

    def __iter__(self) -> Iterator[Instance]:
        return iter(self._all.values())

    def put(self, instance: Instance) -> None:
        self.discard(instance.key)
        self._all[instance.key] = instance
        self._accounts[instance.service_account] += 1
        if not instance.meshed or instance.included_ports is not None or instance.excluded_ports:
            self._odd[instance.key] = instance

    def discard(self, key: str) -> None:
        instance = self._all.pop(key, None)
        if instance is None:
            return
        self._odd.pop(key, None)
        self._accounts[instance.service_account] -= 1
        if not self._accounts[instance.service_account]:
            del self._accounts[instance.service_account]

    def standing(self, service: Service) -> Standing:
        accounts = tuple(sorted(account for account in self._accounts if account))
        if service.resolution is not Resolution.STATIC:
            return Standing(accounts=accounts)
        odd = self._odd.values()
        return Standing(
            tuple(port.number for port in service.ports if all(_is_met(each, port) for each in odd)), accounts
        )

    def secured(self, service: Service, off: Off | None) -> tuple[int, ...]:
        """The service ports at which every instance accepts the mesh's TLS. `off`: returns whether policies disable
        mTLS for the workloads with these labels at a port; None if they disable it nowhere."""
        return tuple(port.number for port in service.ports if all(_takes_tls(each, port, off) for each in self))


def written_standing(service: Service) -> Standing:
    """The standing of a service whose endpoints are listed in a ServiceEntry."""
    return Standing(accounts=tuple(sorted({each.service_account for each in service.static_endpoints} - {""})))


def joined_standing(members: Standing | None, others: Sequence[Instance | None], service: Service) -> Standing:
    """The standing of a service. `members`: the standing of the instances that its selector selects; None without a
    selector. `others`: the instances of endpoints that a person or a controller added; None for an endpoint that
    is not a pod."""
    meshed = members.meshed if members else tuple(port.number for port in service.ports)
    accounts = {each.service_account for each in others if each is not None and each.service_account}
    return Standing(
        tuple(
            port.number
            for port in service.ports
            if port.number in meshed and all(each is not None and _is_met(each, port) for each in others)
        ),
        tuple(sorted(accounts.union(members.accounts if members else ()))),
    )


def all_secured(others: Sequence[Instance | None], service: Service, off: Off | None) -> tuple[int, ...]:
    """The service ports at which all endpoints in `others` accept the mesh's TLS. None in `others` is an endpoint
    that is not a pod, which does not accept it. `off`: returns whether policies disable mTLS for the workloads
    with these labels at a port; None if they disable it nowhere."""
    return tuple(
        port.number
        for port in service.ports
        if all(each is not None and _takes_tls(each, port, off) for each in others)
    )


def _is_met(instance: Instance, port: ServicePort) -> bool:
    """Whether a proxy receives the calls to this service port at the instance. Calls to a port that is excluded from
    interception go directly to the application."""
    number = instance.port_for(port)
    return instance.meshed and (number is None or instance.intercepts(number))


def _takes_tls(instance: Instance, port: ServicePort, off: Off | None) -> bool:
    number = instance.port_for(port)
    if number is None:
        return True
    return instance.speaks_tls(number) and not (off is not None and off(instance.labels, number))
