"""Findings about Services that are exposed outside the mesh by a NodePort or a load balancer, and whose workloads
accept only mutual TLS."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from weft.analyze.facts import Facts
from weft.analyze.pods import found
from weft.api.document import Document
from weft.base.problem import Problem
from weft.model.peer_authentication import TlsMode
from weft.model.service import Protocol, Service

_OPEN = ("NodePort", "LoadBalancer")


def of_outside(facts: Facts, documents: Iterable[Document]) -> Iterator[Problem]:
    services = {service.origin.key: service for service in facts.services if service.origin is not None}
    for document in documents:
        spec = document.body.get("spec")
        kind = spec.get("type") if document.key.kind == "Service" and isinstance(spec, dict) else ""
        service = services.get(document.key)
        if kind in _OPEN and service is not None and (turned_away := _turned_away(service, facts)):
            number, workload = turned_away
            what = (
                f"{workload} accepts only mutual TLS at port {number}: calls to this {kind} from outside the mesh are "
                "rejected"
            )
            hint = "put a gateway in front of the service, or set that port to PERMISSIVE in `portLevelMtls`"
            yield found("WFT0311", document, ("spec", "type"), what, hint)


def _turned_away(service: Service, facts: Facts) -> tuple[int, str] | None:
    """A port at which all workloads of a service reject plaintext, and the name of one of these workloads; None if
    there is no such port."""
    behind = facts.selected(service.namespace, service.selector) if service.selector else ()
    for port in service.ports if behind else ():
        numbers = [(runner, runner.instance.port_for(port)) for runner in behind]
        if port.protocol is not Protocol.UDP and all(
            number is not None
            and runner.instance.intercepts(number)
            and facts.modes(service.namespace, runner.labels).at(number) is TlsMode.STRICT
            for runner, number in numbers
        ):
            return port.number, numbers[0][0].name
    return None
