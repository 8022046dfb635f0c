"""Ports of workloads, as numbers in policies mean them. A Service's number is not the workload's own: where one was
written for the other, this room guesses which was meant."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from weft.analyze.facts import Facts, Runner
from weft.mesh.claims import strength
from weft.model.carried import Carried
from weft.model.service import Protocol

_Place = tuple[str, str]  # the namespace and the name of a runner


class Ports:
    """Of everything that runs, for the policies that ask."""

    def __init__(self, facts: Facts) -> None:
        self.tcp: dict[_Place, set[int]] = defaultdict(set)  # treated as something else than HTTP
        self.http: dict[_Place, set[int]] = defaultdict(set)
        self._disguising: dict[_Place, set[int]] = defaultdict(set)
        self._targets: dict[_Place, set[tuple[int, int]]] = defaultdict(
            set
        )  # a Service's number and the workload's own
        # As the proxy takes them: what all services say, the best claim first, and the workload where they are silent.
        said: dict[tuple[_Place, int], dict[Protocol, None]] = defaultdict(dict)
        for service in sorted(facts.services, key=strength):
            for runner in facts.selected(service.namespace, service.selector) if service.selector else ():
                place = (service.namespace, runner.name)
                for port in service.ports:
                    number = runner.instance.port_for(port) or port.number
                    self._targets[place].add((port.number, number))
                    if port.protocol is not Protocol.UDP and not runner.instance.gateway:
                        said[(place, number)][port.protocol] = None
        for namespace, runners in facts.runners.items():
            for runner in runners:
                for number, protocol in runner.instance.protocols:
                    known = said[((namespace, runner.name), number)]
                    if not known or tuple(known) == (Protocol.UNDECLARED,):
                        known.clear()
                        known[protocol] = None
                # A gateway is told by its Gateways what its ports carry; inside TLS one may carry both, by name.
                for server in facts.servers(namespace, runner):
                    kept = self.http if server.server.is_http else self.tcp
                    kept[(namespace, runner.name)].add(server.listens)
        for (place, number), protocols in said.items():
            carried = Carried(tuple(protocols))
            if carried.spoken is not None:
                self.http[place].add(number)
            if any(each not in (Protocol.UDP, Protocol.UNDECLARED) and not each.is_http for each in protocols):
                self.tcp[place].add(number)
            if carried.http and carried.bytes:
                self._disguising[place].add(number)

    def meant(self, number: int, chosen: Iterable[tuple[str, Runner]]) -> int:
        """The workload's port where a Service's number was written; 0 if the number may well be the workload's."""
        found: set[int] = set()
        for namespace, runner in chosen:
            targets = self._targets.get((namespace, runner.name), ())
            own = {target for _, target in targets} | {port for _, port in runner.ports or ()}
            if number in own:
                return 0
            found |= {target for port, target in targets if port == number}
        return min(found, default=0)

    def declared(self, chosen: Iterable[tuple[str, Runner]]) -> tuple[int, ...]:
        """Every port that these are known to have; none if one of them does not say."""
        found: set[int] = set()
        for namespace, runner in chosen:
            if not runner.ports:
                return ()
            found |= {port for _, port in runner.ports}
            found |= {target for _, target in self._targets.get((namespace, runner.name), ())}
        return tuple(sorted(found))

    def disguising(self, namespace: str, runner: Runner) -> tuple[int, ...]:
        """Ports that carry HTTP and anything else: nobody says what, or Services say both."""
        return tuple(sorted(self._disguising.get((namespace, runner.name), ())))
