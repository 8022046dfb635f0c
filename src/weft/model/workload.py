"""A Workload of the local engine: its command, number of replicas and readiness probe. Each running replica is a pod,
and the mesh sees that pod as an Instance."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum

import msgspec

from weft.model.names import Labels, Origin
from weft.model.service import Protocol


class RestartPolicy(StrEnum):
    ALWAYS = "Always"
    ON_FAILURE = "OnFailure"
    NEVER = "Never"  # together with OnFailure: a job, which may complete


class WorkloadPort(msgspec.Struct, frozen=True):
    number: int
    name: str = ""
    protocol: Protocol = Protocol.UNDECLARED


class HttpProbe(msgspec.Struct, frozen=True):
    port: int | str
    path: str = "/"
    scheme: str = "HTTP"
    headers: tuple[tuple[str, str], ...] = ()


class TcpProbe(msgspec.Struct, frozen=True):
    port: int | str


class ExecProbe(msgspec.Struct, frozen=True):
    command: tuple[str, ...]


class Probe(msgspec.Struct, frozen=True):
    check: HttpProbe | TcpProbe | ExecProbe
    initial_delay: timedelta = timedelta(0)
    period: timedelta = timedelta(seconds=1)
    timeout: timedelta = timedelta(seconds=1)
    success_threshold: int = 1
    failure_threshold: int = 3


class PublishedPort(msgspec.Struct, frozen=True):
    """A port of a gateway that is published on this machine: connections to `address` and `host_port` of the machine
    lead to `port` of the gateway. `line`: the line in the file that declares it."""

    port: int
    host_port: int
    address: str = "127.0.0.1"  # an address of the machine
    line: int = 0


class Workload(msgspec.Struct, frozen=True):
    name: str
    namespace: str
    command: tuple[str, ...]
    labels: Labels = ()
    annotations: Labels = ()
    service_account: str = "default"
    working_directory: str = ""  # absolute; api/ resolves it against the file's own directory
    # Absolute paths that the command sees even below directories that are closed to its user: those that the object
    # lists, and the working directory if it is written.
    mounts: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    ports: tuple[WorkloadPort, ...] = ()
    replicas: int = 1
    readiness: Probe | None = None
    restart: RestartPolicy = RestartPolicy.ALWAYS
    inject: bool = True
    exclude_inbound_ports: tuple[int, ...] = ()
    exclude_outbound_ports: tuple[int, ...] = ()
    include_inbound_ports: str = "*"  # "*", "" or a comma-separated list, as in Istio's annotations
    include_outbound_ports: tuple[int, ...] = ()
    include_outbound_ranges: str = "*"
    exclude_outbound_ranges: tuple[str, ...] = ()
    locality: str = ""
    gateway: bool = False  # its pods are gateway proxies without a command
    publish: tuple[PublishedPort, ...] = ()
    origin: Origin | None = None

    @property
    def included_ports(self) -> tuple[int, ...] | None:
        """The inbound ports that the sidecar intercepts, and no others; None if it intercepts all ports."""
        written = self.include_inbound_ports
        return None if written == "*" else tuple(int(port) for port in written.split(",") if port.strip())
