"""Connections that were late because nobody said what they speak: whom to tell, and when it is over.

A proxy counts, per listener, the connections on which the first bytes did not come in time. Counts in, problems out: a
warning names the service as one would write it, and is gone as soon as the port's protocol is declared, although
Envoy's count stays.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from ipaddress import ip_address

from weft.base.problem import Problem, Severity, Where
from weft.model.group import Group, ProxyKind
from weft.model.mesh import Mesh
from weft.model.service import Protocol, Service, ServicePort
from weft.model.workload import Workload

Timeouts = Mapping[tuple[str, int], int]  # by the listener's address and port
_Ports = tuple[tuple[int, Protocol], ...]

_INBOUND_PORT = 15006
_EVERYWHERE = ("0.0.0.0", "::")
_HINT = "declare the port's `appProtocol` in its Service (tcp, mysql, …): then nothing waits"


class Detection:
    def __init__(self) -> None:
        # By pod: its ports, and how many connections had been late when they came to be these. All inbound ports
        # share one count, so only what came on top says something about the ports as they are.
        self._inbound: dict[str, tuple[_Ports, int]] = {}

    def late(self, pod: str, workload: Workload, timeouts: Timeouts, mesh: Mesh) -> list[Problem]:
        origin = workload.origin
        where = Where(
            origin.file if origin else "",
            origin.line if origin else 0,
            f"Workload {workload.namespace}/{workload.name}",
        )
        # How many is not said: a problem whose words change would be solved and found anew with each look.
        places = dict.fromkeys(
            [*self._into(pod, workload, timeouts, mesh), *_out_of(workload.namespace, timeouts, mesh)]
        )
        return [
            Problem(
                where,
                f"connections {place} waited for first bytes that did not come, and were then passed on as TCP",
                _HINT,
                Severity.WARNING,
            )
            for place in places
        ]

    def forget(self, pod: str) -> None:
        self._inbound.pop(pod, None)

    def _into(self, pod: str, workload: Workload, timeouts: Timeouts, mesh: Mesh) -> Iterator[str]:
        group = Group(ProxyKind.SIDECAR, workload.namespace, workload.labels, workload.service_account)
        ports = tuple((port.number, port.protocol) for port in mesh.inbound_ports(group))
        count = sum(number for (_, port), number in timeouts.items() if port == _INBOUND_PORT)
        known, before = self._inbound.get(pod, (ports, 0))
        # Fewer than before: the proxy has started again.
        before = count if known != ports else 0 if count < before else before
        self._inbound[pod] = (ports, before)
        if count > before:
            undeclared = [str(number) for number, protocol in ports if protocol is Protocol.UNDECLARED]
            which = f" (undeclared here: {', '.join(undeclared)})" if undeclared else ""
            yield f"into a port whose protocol is not declared{which}"


def _out_of(namespace: str, timeouts: Timeouts, mesh: Mesh) -> Iterator[str]:
    for address, number in sorted(timeouts):
        if number == _INBOUND_PORT:
            continue
        if address in _EVERYWHERE:
            yield f"to port {number}"
            continue
        for service, port in _behind(address, number, mesh):
            if port.protocol is Protocol.UNDECLARED:
                short = f"{service.name}.{service.namespace}"
                internal = service.host.startswith(f"{short}.svc.")
                yield f"to {short if internal else service.host}:{number}"


def _behind(address: str, number: int, mesh: Mesh) -> Iterator[tuple[Service, ServicePort]]:
    """The services that a listener's address means: by their virtual addresses, or a headless one by its pods'."""
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


def _same(one: str, other: str) -> bool:
    try:
        return ip_address(one) == ip_address(other)
    except ValueError:
        return False
