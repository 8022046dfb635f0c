"""Warns about connections that Envoy delayed or dropped because the protocol of their port is not declared.

On such a port Envoy inspects the first bytes of a connection to detect its protocol. For each listener, Envoy counts
two kinds of connections. On the first kind, no bytes arrived in time. On the second kind, the caller had closed its
sending side before the inspection: Envoy drops such a connection, with the data that was sent. Input: these counts.
Output: problems. A warning names the service in the way a user would write it. It disappears as soon as the port's
protocol is declared, although Envoy's count stays.
"""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import ip_address

from weft.base.problem import Problem, Severity
from weft.local.traffic import ByListener, Scrape
from weft.mesh.mesh import Mesh
from weft.model.carried import Carried
from weft.model.group import group_of
from weft.model.names import where_of
from weft.model.proxy import INBOUND_PORT
from weft.model.service import Protocol, Service, ServicePort
from weft.model.workload import Workload

_Ports = tuple[tuple[int, Carried], ...]

_EVERYWHERE = ("0.0.0.0", "::")
_LATE = "were delayed, as the client sent no first bytes in time, and were then forwarded as TCP"
_CUT = "were dropped, as the client had closed its sending side before Envoy could inspect the first bytes"
_UNREAD = "were dropped, as they sent 64 KiB without a line end, from which Envoy could not detect the protocol"
_MOST_NAMED = 5
_HINT = "declare the port's `appProtocol` in its Service (tcp, mysql, …): then Envoy does not inspect the first bytes"


class Detection:
    def __init__(self) -> None:
        # By pod and kind of trouble: the pod's inbound ports, and Envoy's count at the time when the ports became
        # these. All inbound ports share one count, so only the increase since then concerns the current ports.
        self._inbound: dict[tuple[str, str], tuple[_Ports, int]] = {}
        # By pod: all undeclared ports, and Envoy's count, which is not per port, at the time when these became the
        # ports.
        self._unread: dict[str, tuple[frozenset[tuple[str, int]], int]] = {}

    def problems(self, pod: str, workload: Workload, scrape: Scrape, mesh: Mesh) -> list[Problem]:
        where = where_of(workload.origin, f"Workload {workload.namespace}/{workload.name}")
        # The text contains no count: a problem whose text changes would be reported as solved and as new at every
        # scrape.
        places = {
            _LATE: [
                *self._into(pod, workload, _LATE, scrape.timeouts, mesh),
                *_out_of(scrape.timeouts, mesh, shared=True),
            ],
            # A port that several HTTP services share drops idle connections in this way all the time, without losing
            # data.
            _CUT: [*self._into(pod, workload, _CUT, scrape.cuts, mesh), *_out_of(scrape.cuts, mesh, shared=False)],
            _UNREAD: [*self._unreadable(pod, scrape.unread, mesh)],
        }
        return [
            Problem(where, f"connections {place} {what}", _HINT, Severity.WARNING)
            for what, locations in places.items()
            for place in dict.fromkeys(locations)
        ]

    def forget(self, pod: str) -> None:
        for what in (_LATE, _CUT):
            self._inbound.pop((pod, what), None)
        self._unread.pop(pod, None)

    def _into(self, pod: str, workload: Workload, what: str, counts: ByListener, mesh: Mesh) -> Iterator[str]:
        ports = tuple((port.number, port.carried) for port in mesh.inbound_ports(group_of(workload)))
        count = sum(number for (_, port), number in counts.items() if port == INBOUND_PORT)
        ports_before, before = self._inbound.get((pod, what), (ports, 0))
        # A smaller count than before: the proxy has restarted.
        before = count if ports_before != ports else 0 if count < before else before
        self._inbound[(pod, what)] = (ports, before)
        if count > before:
            which = (
                *_named("undeclared", ports, declared=False),
                *_named("declared with several protocols", ports, declared=True),
            )
            yield "to an inbound port whose protocol is not declared" + (f" ({'; '.join(which)})" if which else "")

    def _unreadable(self, pod: str, count: int, mesh: Mesh) -> Iterator[str]:
        if not count:
            return
        undeclared = frozenset(
            (service.host, port.number)
            for service in mesh.services()
            for port in service.ports
            if port.protocol is Protocol.UNDECLARED
        )
        undeclared_before, before = self._unread.get(pod, (undeclared, 0))
        before = count if undeclared_before != undeclared else 0 if count < before else before
        self._unread[pod] = (undeclared, before)
        if count > before and undeclared:
            named = ", ".join(f"{host}:{port}" for host, port in sorted(undeclared)[:_MOST_NAMED])
            yield f"to or from a port whose protocol is not declared ({named})"


def _named(what: str, ports: _Ports, *, declared: bool) -> Iterator[str]:
    """Yield one text `WHAT: PORT, PORT`, which lists inbound ports on which Envoy detects the protocol; nothing if
    there are none. `what`: the name before the colon. With `declared`, the listed ports are those for which services
    declare different protocols; without it, those whose protocol is not declared."""
    looked_into = [(number, carried.first is not Protocol.UNDECLARED) for number, carried in ports if carried.detected]
    if numbers := [str(number) for number, is_declared in looked_into if is_declared is declared]:
        yield f"{what}: {', '.join(numbers)}"


def _out_of(counts: ByListener, mesh: Mesh, *, shared: bool) -> Iterator[str]:
    for address, number in sorted(counts):
        if number == INBOUND_PORT:
            continue
        if address in _EVERYWHERE:
            if shared:
                yield f"to port {number}"
            continue
        for service, port in _behind(address, number, mesh):
            if port.protocol is Protocol.UNDECLARED:
                short = f"{service.name}.{service.namespace}"
                internal = service.host.startswith(f"{short}.svc.")
                yield f"to {short if internal else service.host}:{number}"


def _behind(address: str, number: int, mesh: Mesh) -> Iterator[tuple[Service, ServicePort]]:
    """Yield each service that owns the `address` of a listener, with the service's port `number`. The address is a
    virtual address of the service, or, if the service is headless, the address of one of its pods."""
    for service in mesh.services():
        port = service.port(number)
        if port is None:
            continue
        if service.headless:
            pods = mesh.endpoints(service, port)
            addresses = [each for pod in pods for each in (pod.address, *pod.extra_addresses)]
        else:
            addresses = [each for each in service.addresses if "/" not in each]
        if any(_same(each, address) for each in addresses):
            yield service, port


def _same(first: str, second: str) -> bool:
    try:
        return ip_address(first) == ip_address(second)
    except ValueError:
        return False
