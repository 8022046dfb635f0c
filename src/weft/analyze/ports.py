"""Ports of workloads, for checks of policies that name ports by number. Policies need the number of the workload's
own port; `Ports.meant` finds it if a policy names a Service's port instead. `Ports` also has the protocol of each
port."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from weft.analyze.facts import Facts, Runner
from weft.mesh.claims import strength
from weft.model.carried import Carried
from weft.model.names import selects
from weft.model.service import Protocol

_Place = tuple[str, str]  # the namespace and the name of a runner


class Ports:
    """The ports of all runners (workloads or pods) and their protocols."""

    def __init__(self, facts: Facts) -> None:
        self.tcp: dict[_Place, set[int]] = defaultdict(set)  # carry something else than HTTP, at least for some callers
        self.http: dict[_Place, set[int]] = defaultdict(set)
        self._disguising: dict[_Place, set[int]] = defaultdict(set)
        self._targets: dict[_Place, set[tuple[int, int]]] = defaultdict(
            set
        )  # port numbers of Services, and the workload's port for each
        # The protocols of each port, as the proxy handles them: those that all services declare, the best claim first;
        # if no service declares one, the workload's own.
        declared: dict[tuple[_Place, int], dict[Protocol, None]] = defaultdict(dict)
        for service in sorted(facts.services, key=strength):
            for runner in facts.selected(service.namespace, service.selector) if service.selector else ():
                place = (service.namespace, runner.name)
                for port in service.ports:
                    number = runner.instance.port_for(port) or port.number
                    self._targets[place].add((port.number, number))
                    if port.protocol is not Protocol.UDP and not runner.instance.gateway:
                        declared[(place, number)][port.protocol] = None
        # Ports at which the Sidecars that may apply to a runner make its proxy listen.
        self._ingress: dict[_Place, set[int]] = defaultdict(set)
        for namespace, runners in facts.runners.items():
            for runner in runners:
                for sidecar in facts.sidecars:
                    near = sidecar.namespace in (namespace, facts.settings.root_namespace)
                    if near and selects(sidecar.selector or (), runner.labels):
                        numbers = (listener.port.number for listener in sidecar.ingress)
                        self._ingress[(namespace, runner.name)].update(numbers)
                for number, protocol in runner.instance.protocols:
                    known = declared[((namespace, runner.name), number)]
                    if not known or tuple(known) == (Protocol.UNDECLARED,):
                        known.clear()
                        known[protocol] = None
                # For a gateway, its Gateway objects define what a port carries. A TLS port may carry both HTTP and TCP,
                # by SNI.
                for server in facts.servers(namespace, runner):
                    kept = self.http if server.server.is_http else self.tcp
                    kept[(namespace, runner.name)].add(server.listens)
        for (place, number), protocols in declared.items():
            carried = Carried(tuple(protocols))
            if carried.spoken is not None:
                self.http[place].add(number)
            if any(each not in (Protocol.UDP, Protocol.UNDECLARED) and not each.is_http for each in protocols):
                self.tcp[place].add(number)
            if carried.http and carried.bytes:
                self._disguising[place].add(number)

    def meant(self, number: int, chosen: Iterable[tuple[str, Runner]]) -> int:
        """The workload's own port to which the Service port `number` leads, for a policy that names the Service port by
        mistake. `chosen`: the runners that the policy selects, each with its namespace. 0 if `number` may itself be a
        port of one of these runners, or if no Service has this port."""
        meant: set[int] = set()
        for namespace, runner in chosen:
            targets = self._targets.get((namespace, runner.name), ())
            own = {target for _, target in targets} | {port for _, port in runner.ports or ()}
            own |= self._ingress.get((namespace, runner.name), set())
            if number in own:
                return 0
            meant |= {target for port, target in targets if port == number}
        return min(meant, default=0)

    def declared(self, chosen: Iterable[tuple[str, Runner]]) -> tuple[int, ...]:
        """All ports of some runners: the ports that they declare, those to which Services lead, and those of the
        `ingress` of Sidecars. Empty (unknown) if one of the runners declares no ports. `chosen`: the runners, each with
        its namespace."""
        numbers: set[int] = set()
        for namespace, runner in chosen:
            if not runner.ports:
                return ()
            numbers |= {port for _, port in runner.ports}
            numbers |= {target for _, target in self._targets.get((namespace, runner.name), ())}
            numbers |= self._ingress.get((namespace, runner.name), set())
        return tuple(sorted(numbers))

    def disguising(self, namespace: str, runner: Runner) -> tuple[int, ...]:
        """The ports of a runner (a workload or pod) on which a request can be handled as HTTP or as raw TCP,
        depending on its first bytes. On such a port no Service declares the protocol, or one Service declares
        HTTP and another a different protocol."""
        return tuple(sorted(self._disguising.get((namespace, runner.name), ())))
