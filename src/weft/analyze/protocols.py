"""What services say of the protocols of their ports, where they do not say it, contradict each other, or cannot be
right."""

from __future__ import annotations

from collections.abc import Iterator

from weft.analyze.facts import Facts
from weft.analyze.finding import finding
from weft.base.problem import Problem
from weft.model.claims import strength
from weft.model.service import Protocol, Service, ServicePort

# What is served at these numbers the world over, and is not HTTP.
_WELL_KNOWN = {
    1433: "SQL Server",
    1521: "Oracle",
    3306: "MySQL",
    5432: "PostgreSQL",
    5672: "AMQP",
    6379: "Redis",
    9042: "Cassandra",
    9092: "Kafka",
    11211: "memcached",
    27017: "MongoDB",
}
_NOT_OURS = ("kube-system", "kube-public", "kube-node-lease")  # the cluster's own, which nobody here has written
_Place = tuple[str, str, int]  # the namespace and the name of a runner, and a port of it


def of_protocols(facts: Facts) -> Iterator[Problem]:
    said: dict[_Place, tuple[Service, ServicePort]] = {}
    seen = set()  # the hosts of one ServiceEntry are one object
    for service in sorted(facts.services, key=strength):
        if service.origin in seen or service.namespace in _NOT_OURS:
            continue
        seen.add(service.origin)
        for index, port in enumerate(service.ports):
            yield from _of_port(service, index, port)
        yield from _of_targets(service, facts, said)


def _of_port(service: Service, index: int, port: ServicePort) -> Iterator[Problem]:
    field = f"spec.ports[{index}]"
    if port.protocol is Protocol.UDP:
        what = (
            f"port {port.number} is UDP, which is left alone: it goes past the proxies, without routes, policies or TLS"
        )
        yield finding("WFT0319", service.origin, field, what, "nothing is to be done if that is what you want")
        return
    if port.protocol is Protocol.UNDECLARED:
        named = f"`{port.name}` of port {port.number}" if port.name else f"port {port.number}, which has no name,"
        what = f"{named} does not say what it carries: it is found out by the first bytes of each connection"
        yield finding(
            "WFT0307", service.origin, field, what, "begin its name with http, grpc, tcp …, or set `appProtocol`"
        )
        return
    numbers = (port.number, port.target)
    served = next((_WELL_KNOWN[number] for number in numbers if isinstance(number, int) and number in _WELL_KNOWN), "")
    if served and port.protocol.is_http:
        what = (
            f"port {port.number} is said to carry {port.protocol.value}, and at this number there usually is {served}"
        )
        yield finding("WFT0309", service.origin, field, what, "if it is, begin the port's name with tcp")


def _of_targets(service: Service, facts: Facts, said: dict[_Place, tuple[Service, ServicePort]]) -> Iterator[Problem]:
    for index, port in enumerate(service.ports if service.selector else ()):
        if port.protocol in (Protocol.UDP, Protocol.UNDECLARED):
            continue
        for runner in facts.selected(service.namespace, service.selector or ()):
            number = runner.instance.port_for(port)
            if number is None:
                continue
            first, other = said.setdefault((service.namespace, runner.name, number), (service, port))
            if other.protocol.is_http == port.protocol.is_http:
                continue
            own = first is service
            who = f"port {other.number} of this Service" if own else f"Service {first.name}"
            what = (
                f"port {number} of {runner.name} is {port.protocol.value} here and {other.protocol.value} to {who}: "
                f"its proxy treats it as the latter, and {_met(port.protocol)}"
            )
            code = "WFT0318" if own else "WFT0308"
            yield finding(code, service.origin, f"spec.ports[{index}]", what, "one port carries one protocol")
            break


def _met(protocol: Protocol) -> str:
    """What callers meet who speak this to a proxy that expects the other."""
    if not protocol.is_http:
        return "refuses what is not HTTP"
    if protocol.is_http2:
        return "reads nothing of it: no policy sees a path or a method"
    # Between proxies HTTP is HTTP/2, which the workload's own would have turned back.
    return "passes on the HTTP/2 of callers' proxies unread: they get 502 unless the application speaks it"
