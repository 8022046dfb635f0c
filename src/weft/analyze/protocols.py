"""Findings about the protocols of service ports: not declared, contradicting each other, or unlikely for the port
number."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from weft.analyze.facts import Facts
from weft.analyze.finding import finding
from weft.base.problem import Problem
from weft.mesh.claims import strength
from weft.model.service import Protocol, Service, ServicePort

# Well-known port numbers whose protocol is not HTTP.
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
_NOT_OURS = ("kube-system", "kube-public", "kube-node-lease")  # the cluster's own namespaces
_Place = tuple[str, str, int]  # the namespace and the name of a runner, and a port of it
_Saying = tuple[Service, ServicePort]


def of_protocols(facts: Facts) -> Iterator[Problem]:
    declared: dict[_Place, list[_Saying]] = defaultdict(list)
    seen = set()  # the hosts of one ServiceEntry are one object
    for service in sorted(facts.services, key=strength):
        if service.origin in seen or service.namespace in _NOT_OURS:
            continue
        seen.add(service.origin)
        for index, port in enumerate(service.ports):
            yield from _of_port(service, index, port)
        yield from _of_targets(service, facts, declared)


def _of_port(service: Service, index: int, port: ServicePort) -> Iterator[Problem]:
    field = f"spec.ports[{index}]"
    if port.protocol is Protocol.UDP:
        what = (
            f"port {port.number} is UDP, which is not intercepted: it bypasses the proxies, without routes, policies "
            "or TLS"
        )
        yield finding("WFT0319", service.origin, field, what, "no change is needed if that is intended")
        return
    if port.protocol is Protocol.UNDECLARED:
        named = f"`{port.name}` of port {port.number}" if port.name else f"port {port.number}, which has no name,"
        what = f"{named} declares no protocol: proxies detect it from the first bytes of each connection"
        yield finding(
            "WFT0307", service.origin, field, what, "begin the port's name with http, grpc, tcp …, or set `appProtocol`"
        )
        return
    numbers = (port.number, port.target)
    known = next((number for number in numbers if isinstance(number, int) and number in _WELL_KNOWN), 0)
    if known and port.protocol.is_http:
        served = _WELL_KNOWN[known]
        what = f"port {port.number} is declared as {port.protocol.value}, but {known} is usually the port of {served}"
        yield finding("WFT0309", service.origin, field, what, f"if it is {served}, begin the port's name with tcp")


def _of_targets(service: Service, facts: Facts, declared: dict[_Place, list[_Saying]]) -> Iterator[Problem]:
    for index, port in enumerate(service.ports if service.selector else ()):
        if port.protocol is Protocol.UDP:
            continue
        problems: tuple[Problem, ...] = ()  # of the first runner that has any
        for runner in facts.selected(service.namespace, service.selector or ()):
            number = runner.instance.port_for(port)
            if number is None:
                continue
            before = declared[(service.namespace, runner.name, number)]
            if not problems and port.protocol is not Protocol.UNDECLARED:
                problems = tuple(_of_saying(service, index, f"port {number} of {runner.name}", before))
            before.append((service, port))
        yield from problems


def _of_saying(service: Service, index: int, at: str, before: list[_Saying]) -> Iterator[Problem]:
    """Findings about a Service port (`service.ports[index]`) whose protocol contradicts that of other Services for the
    same workload port. `at`: the workload port, for messages. `before`: the Service ports that lead to the same
    workload port and come before this one, the oldest first."""
    field, new = f"spec.ports[{index}]", service.ports[index].protocol
    declared = next((each for each in before if each[1].protocol is not Protocol.UNDECLARED), None)
    if declared is not None and declared[1].protocol.is_http != new.is_http:
        code = "WFT0318" if declared[0] is service else "WFT0308"
        other = _owner(declared, service)
        what = (
            f"{at} is {new.value} here and {_elsewhere(declared, service)}: {_met(new, before[0][1].protocol, other)}"
        )
        yield finding(code, service.origin, field, what, "declare one protocol per port")
    spoken = next((each for each in before if each[1].protocol.is_http), None)
    if spoken is not None and new.is_http and spoken[1].protocol.is_http2 != new.is_http2:
        what = f"{at} is {new.value} here and {_elsewhere(spoken, service)}: {_spoken(new)}"
        oldest, port = before[
            0
        ]  # its settings apply to the connection pool; `useClientProtocol` has no effect for raw TCP
        hint = "declare the same protocol"
        if port.protocol.is_http or port.protocol is Protocol.UNDECLARED:
            hint += (
                f"; if the application supports both, set `useClientProtocol` in a DestinationRule for {oldest.host}"
            )
        yield finding("WFT0321", service.origin, field, what, hint)


def _elsewhere(saying: _Saying, service: Service) -> str:
    port = saying[1]
    return f"{port.protocol.value} in {_owner(saying, service)}"


def _owner(saying: _Saying, service: Service) -> str:
    other, port = saying
    return f"port {port.number} of this Service" if other is service else f"Service {other.name}"


def _met(protocol: Protocol, oldest: Protocol, other: str) -> str:
    """Text for a message: the effect on calls if two Services declare different protocols for a workload port, one of
    them HTTP. `protocol`: the protocol in the Service that the message is about. `oldest`: the protocol in the oldest
    Service. `other`: the name of the other Service or port."""
    if not protocol.is_http:
        return "policies do not see the path or method of calls through this port"
    if oldest is Protocol.UNDECLARED:
        return f"policies do not see the path or method of calls through {other}"
    return f"for callers without a proxy the protocol in {other} is assumed, and policies do not see a path or method"


def _spoken(protocol: Protocol) -> str:
    """Text for a message about a Service port that declares the HTTP version `protocol`, although the proxy sends the
    other version (HTTP/1.1 or HTTP/2) to the workload: the effect on calls."""
    if not protocol.is_http2:
        return "the workload gets HTTP/2, and must support it"
    if protocol is Protocol.HTTP2:
        return "the workload gets HTTP/1.1"
    return "the workload gets HTTP/1.1, which cannot carry gRPC"
