"""Check whether callers and servers of a service agree on TLS, port by port: what the callers send according to
their DestinationRules, what the servers accept according to their PeerAuthentications, and which objects decide
both.

Rule: servers are checked one by one, since a policy may select only some pods of a service. Equal rows are merged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum

import msgspec

from weft.base.problem import Problem, Where
from weft.inspect.describe.pods_and_services import decided, find_service, members_of
from weft.inspect.describe.routes import named
from weft.inspect.stage import Stage
from weft.mesh.mesh import Mesh
from weft.model.destination_rule import ClientTlsMode, DestinationRule, Subset, effective
from weft.model.endpoint import Endpoint
from weft.model.group import Group, group_of
from weft.model.instance import Instance
from weft.model.names import selects
from weft.model.peer_authentication import TlsMode
from weft.model.service import Protocol, Service, ServicePort
from weft.translate.policy import by_callers_address


class Agreement(StrEnum):
    OK = "OK"
    CONFLICT = "CONFLICT"
    UNKNOWN = "UNKNOWN"  # there is no endpoint, or the application decides


class Sent(StrEnum):
    PLAINTEXT = "plaintext"
    MUTUAL = "mTLS"  # mutual TLS with the certificates of the mesh
    ONE_SIDED = "TLS"  # only the server has a certificate
    OTHERS = "mTLS of files"
    NOTHING = "nothing"  # the DestinationRule was rejected, so calls fail


class TlsRow(msgspec.Struct, frozen=True):
    host: str
    port: int
    status: Agreement
    server: str  # what the server accepts: STRICT, PERMISSIVE, DISABLE, or what there is instead of a proxy
    client: str  # what callers send, as in `Sent`; or UDP, which bypasses proxies
    policy: Where | None  # the PeerAuthentication that decides; None for the default
    rule: Where | None  # the DestinationRule that is in force
    subset: str = ""
    servers: tuple[str, ...] = ()
    callers: tuple[str, ...] = ()
    why: str = ""  # the reason, if `status` is not OK


_OWN_TLS = "mTLS of its own"
_BY_RULE = {
    ClientTlsMode.DISABLE: Sent.PLAINTEXT,
    ClientTlsMode.SIMPLE: Sent.ONE_SIDED,
    ClientTlsMode.MUTUAL: Sent.OTHERS,
    ClientTlsMode.ISTIO_MUTUAL: Sent.MUTUAL,
    ClientTlsMode.CLOSED: Sent.NOTHING,
}


class NoSuchPort(Exception):
    def __init__(self, service: Service, port: int) -> None:
        what = f"{service.host} has no port {port}"
        super().__init__(what)
        known = ", ".join(str(each.number) for each in service.ports)
        self.problem = Problem(named(service), what, f"it has {known}" if known else "")


def tls_check(
    mesh: Mesh, stage: Stage, host: str, *, port: int = 0, caller: str = "", namespace: str = ""
) -> tuple[TlsRow, ...]:
    """Return the rows of the check for a host. `port`: 0 for all ports. `caller`: a pod, in whose namespace the host
    is resolved; "": all pods with a proxy. `namespace`: the namespace of the service, if `host` does not contain
    it. Raises NoSuchService, NoSuchPort, NoSuchWorkload, Ambiguous."""
    meant = stage.service(host, stage.instance(caller).namespace) if caller and not namespace else None
    service = meant or find_service(mesh, host, namespace)
    ports = [each for each in service.ports if port in (0, each.number)]
    if port and not ports:
        raise NoSuchPort(service, port)
    rows: dict[TlsRow, tuple[set[str], set[str]]] = {}
    for names, group in _callers(mesh, stage, service, caller):
        for each in ports:
            if each.protocol is Protocol.UDP:
                rows.setdefault(_past_proxies(service, each), (set(), set()))[1].update(names)
                continue
            for row, server in _of_caller(mesh, service, each, group):
                servers, callers = rows.setdefault(row, (set(), set()))
                servers |= {server} if server else set()
                callers.update(names)
    return tuple(
        msgspec.structs.replace(row, servers=tuple(sorted(servers)), callers=tuple(sorted(callers)))
        for row, (servers, callers) in sorted(rows.items(), key=lambda item: _order(item[0]))
    )


def _past_proxies(service: Service, port: ServicePort) -> TlsRow:
    why = "UDP bypasses the proxies: only the application can encrypt it"
    return TlsRow(service.host, port.number, Agreement.UNKNOWN, "no proxy", "UDP", policy=None, rule=None, why=why)


def _callers(mesh: Mesh, stage: Stage, service: Service, caller: str) -> Iterator[tuple[list[str], Group | None]]:
    """Yield the callers of the service. Each item is a list of pod names and the group to which these pods belong,
    or None for a pod without a proxy. `caller`: the only pod to consider; "" for all pods with a proxy."""
    if caller:
        pod = stage.instance(caller)
        yield [f"{pod.name}.{pod.namespace}"], group_of(pod) if pod.proxied else None
        return
    groups = stage.groups()
    if not groups:
        yield [], group_of(Instance("", service.namespace, ()))
    for group, pods in groups.items():
        if mesh.scope(group).ports(service):
            yield pods, group


def _of_caller(mesh: Mesh, service: Service, port: ServicePort, group: Group | None) -> Iterator[tuple[TlsRow, str]]:
    rule = mesh.destination_rule(service.host, service, group) if group is not None else None
    endpoints = mesh.endpoints(service, port)
    yield from _rows(mesh, service, port, rule, None, endpoints, proxied=group is not None)
    whole = effective(rule, port.number).tls
    for subset in rule.subsets if rule is not None else ():
        if effective(rule, port.number, subset).tls != whole:
            inside = [each for each in endpoints if selects(subset.labels, each.labels)]
            yield from _rows(mesh, service, port, rule, subset, inside, proxied=True)


def _rows(
    mesh: Mesh,
    service: Service,
    port: ServicePort,
    rule: DestinationRule | None,
    subset: Subset | None,
    endpoints: Iterable[Endpoint],
    *,
    proxied: bool,
) -> Iterator[tuple[TlsRow, str]]:
    pods = {f"{pod.namespace}/{pod.name}": pod for pod in members_of(mesh, service)}
    base = TlsRow(
        host=service.host,
        port=port.number,
        status=Agreement.UNKNOWN,
        server="no endpoint",
        client=_sends(mesh, service, port, rule, subset, None, proxied=proxied)[1],
        policy=None,
        rule=named(rule) if rule is not None else None,
        subset=subset.name if subset else "",
        why="there is no endpoint",
    )
    has_endpoint = False
    for endpoint in endpoints:
        has_endpoint = True
        sent, client = _sends(mesh, service, port, rule, subset, endpoint, proxied=proxied)
        pod = pods.get(endpoint.instance)
        server, policy = _takes(mesh, pod, endpoint, service)
        status, why = _judged(sent, server)
        row = msgspec.structs.replace(base, status=status, server=server, client=client, policy=policy, why=why)
        yield row, f"{pod.name}.{pod.namespace}" if pod is not None else endpoint.address
    if not has_endpoint:
        yield base, ""


def _sends(
    mesh: Mesh,
    service: Service,
    port: ServicePort,
    rule: DestinationRule | None,
    subset: Subset | None,
    endpoint: Endpoint | None,
    *,
    proxied: bool,
) -> tuple[Sent, str]:
    """What a caller sends to an endpoint (plaintext, TLS or mutual TLS), and the setting that decides it, as text for
    the table. `rule`, `subset`: the DestinationRule and the subset of the call, if any. `endpoint`: None if the service
    has no endpoint. `proxied`: whether the caller has a proxy; without one, it always sends plaintext."""
    if not proxied:
        return Sent.PLAINTEXT, "no proxy"
    chosen = effective(rule, port.number, subset)
    if chosen.tls is not None:
        return _BY_RULE[chosen.tls.mode], str(chosen.tls.mode)
    if service.external or not mesh.settings.auto_mtls:
        return Sent.PLAINTEXT, str(Sent.PLAINTEXT)
    if by_callers_address(service, chosen):
        takes = port.number in mesh.secured_ports(service)
    else:
        takes = endpoint is not None and endpoint.tls
    sent = Sent.MUTUAL if takes else Sent.PLAINTEXT
    return sent, f"auto ({sent})" if endpoint is not None else "auto"


def _takes(mesh: Mesh, pod: Instance | None, endpoint: Endpoint, service: Service) -> tuple[str, Where | None]:
    if pod is None or not endpoint.meshed:
        if endpoint.tls:
            return _OWN_TLS, None
        return ("external" if service.external else "no proxy"), None
    mode = mesh.peer_modes(pod.namespace, pod.labels).at(endpoint.port)
    return str(mode), decided(mesh, pod, endpoint.port)


def _judged(sent: Sent, server: str) -> tuple[Agreement, str]:
    match sent, server:
        case Sent.NOTHING, _:
            return Agreement.CONFLICT, "the DestinationRule was rejected, so calls fail"
        case Sent.PLAINTEXT, (TlsMode.STRICT | "mTLS of its own"):
            return Agreement.CONFLICT, "callers send plaintext, but only mutual TLS is accepted"
        case Sent.MUTUAL, TlsMode.DISABLE:
            return Agreement.CONFLICT, "callers send mutual TLS, but only plaintext is accepted"
        case Sent.MUTUAL, ("no proxy" | "external"):
            return Agreement.CONFLICT, "callers send the mesh's mutual TLS, but there is no proxy to accept it"
        case Sent.ONE_SIDED, TlsMode.STRICT:
            return Agreement.CONFLICT, "callers send TLS without a certificate, but only mutual TLS is accepted"
        case Sent.OTHERS, TlsMode.STRICT:
            return (
                Agreement.UNKNOWN,
                "callers present a certificate from files, but only the mesh's certificates are accepted",
            )
        case ((Sent.ONE_SIDED | Sent.OTHERS), server) if server != "external":
            return Agreement.UNKNOWN, "callers send TLS that the application itself must accept"
    return Agreement.OK, ""


def _order(row: TlsRow) -> tuple[int, str, str, str, str, str]:
    return (row.port, row.subset, row.status, row.server, row.client, str(row.rule))
