"""What a gateway does not do although somebody has written it, and why: servers that are left out, ports at which
nobody listens, names that are closed. A mesh and a gateway's group come in; reasons in words leave, for whoever
explains or describes it. Rule: what is served is decided elsewhere (`weft.mesh.gateways`); here it is compared."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from weft.explain.world import Closed
from weft.inspect.reasons.part import sources
from weft.mesh.mesh import Mesh
from weft.model.destination_rule import ClientTlsMode, DestinationRule, effective
from weft.model.edge import AUTHORITIES, BoundServer
from weft.model.gateway import CredentialRef, Gateway, GatewayServer
from weft.model.group import Group, ProxyKind
from weft.translate.gateway_tls import missing
from weft.translate.view import group_view


class LeftOut(msgspec.Struct, frozen=True):
    gateway: Gateway
    server: GatewayServer
    by: BoundServer  # who has its port, or its names

    @property
    def why(self) -> str:
        first = self.by.server
        if _spoken(first) != _spoken(self.server):
            return f"port {self.server.port.number} speaks {_spoken(first)}, as Gateway {self.by.gateway} says"
        return f"Gateway {self.by.gateway} has the same, and is served"


def left_out(mesh: Mesh, group: Group) -> Iterator[LeftOut]:
    bound = mesh.scope(group).servers or ()
    served = {(each.gateway, each.index) for each in bound}
    for gateway in mesh.gateways_of(group):
        for index, server in enumerate(gateway.servers):
            by = next((each for each in bound if each.server.port.number == server.port.number), None)
            if (gateway.key, index) not in served and by is not None:
                yield LeftOut(gateway, server, by)


def unanswered(mesh: Mesh, bound: BoundServer, group: Group) -> str:
    """Why nobody is answered there; "" where somebody is, or where HTTP says so itself."""
    view = group_view(mesh, group)
    tls = bound.server.tls
    if tls is not None and bound.server.encrypted and (lacking := missing(tls, view)):
        absent = [each for each in tls.credentials if mesh.credential(_placed(each, group)) is None]
        return "; ".join(lacking) + "".join(_elsewhere(mesh, _placed(each, group)) for each in absent)
    if bound.server.is_http:
        return ""
    routings = mesh.edge(mesh.scope(group)).streams.get(bound, ())
    passed = bound.server.encrypted and not (tls is not None and tls.terminates)
    if any(each.tls if passed else each.tcp for each in routings):
        return ""
    return f"no VirtualService has `{'tls' if passed else 'tcp'}` routes for it"


def closed(mesh: Mesh, group: Group) -> tuple[Closed, ...]:
    """For `weft.explain`: the servers of a gateway by which nobody comes in."""
    found = []
    others = [*left_out(mesh, group)]
    for bound in mesh.scope(group).servers or ():
        if why := unanswered(mesh, bound, group):
            what = f"the server of Gateway {bound.gateway} there speaks {_spoken(bound.server)}, and {why}"
            for each in others:
                if each.by == bound:
                    what += f"; that of Gateway {each.gateway.key} for {_spoken(each.server)} is left out"
            hosts = tuple(each.host for each in bound.hosts)
            found.append(Closed(bound.listens, hosts, why, what, sources(bound.origin)))
    return tuple(found)


def unsent(mesh: Mesh, group: Group, rule: DestinationRule, port: int, subset: str = "") -> str:
    """Why nobody is called by a rule whose TLS comes out of a Secret; "" if that is there."""
    tls = effective(rule, port, next((each for each in rule.subsets if each.name == subset), None)).tls
    if tls is None or not tls.credential:
        return ""
    if group.kind is not ProxyKind.GATEWAY and not rule.workload_selector:
        return f"its rule takes a Secret ({tls.credential}), which sidecars do only where it selects them"
    place = f"{group.namespace}/{tls.credential}"
    own = mesh.credential(CredentialRef(tls.credential, group.namespace))
    other = mesh.credential(CredentialRef(f"{tls.credential}{AUTHORITIES}", group.namespace))
    trusted = [each for each in (own, other) if each is not None]
    if not trusted:
        elsewhere = _elsewhere(mesh, CredentialRef(tls.credential, group.namespace))
        return f"there is no Secret {place}{elsewhere}"
    if tls.mode is ClientTlsMode.MUTUAL and (own is None or not own.chain):
        return f"the Secret {place} has no certificate with its key"
    if tls.verify and not any(each.roots for each in trusted):
        return f"the Secret {place} has no `ca.crt`"
    return ""


def _placed(reference: CredentialRef, group: Group) -> CredentialRef:
    return CredentialRef(reference.name, reference.namespace or group.namespace)


def _elsewhere(mesh: Mesh, wanted: CredentialRef) -> str:
    """A Secret of that name in another namespace is mostly the one that is meant."""
    found = sorted(each.namespace for each in mesh.credentials() if each.name == wanted.name)
    return f" (there is one in {', '.join(found)}; it must be in {wanted.namespace})" if found else ""


def _spoken(server: GatewayServer) -> str:
    return str(server.port.protocol).upper()
