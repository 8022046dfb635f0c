"""Find the configured servers of a gateway that do not work, and why: servers that are left out, and hosts whose
connections are closed. Input: a mesh and a gateway's group. Output: reasons as text, for explain and describe.
Rule: this module does not decide what is served (`weft.mesh.gateways` does). It only compares the objects with
that decision."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from weft.explain.world import Closed
from weft.inspect.reasons.part import sources
from weft.mesh.mesh import Mesh
from weft.model.destination_rule import ClientTlsMode, DestinationRule, effective
from weft.model.edge import AUTHORITIES, BoundServer
from weft.model.gateway import Gateway, GatewayServer
from weft.model.group import Group, ProxyKind
from weft.model.names import CredentialRef
from weft.translate.gateway_tls import missing
from weft.translate.view import group_view


class LeftOut(msgspec.Struct, frozen=True):
    gateway: Gateway
    server: GatewayServer
    by: BoundServer  # the server that is served on this port instead

    @property
    def why(self) -> str:
        first = self.by.server
        if _protocol(first) != _protocol(self.server):
            return f"Gateway {self.by.gateway} uses port {self.server.port.number} for {_protocol(first)}"
        return f"Gateway {self.by.gateway} has the same port and hosts, and is served instead"


def left_out(mesh: Mesh, group: Group) -> Iterator[LeftOut]:
    bound = mesh.scope(group).servers or ()
    served = {(each.gateway, each.index) for each in bound}
    for gateway in mesh.gateways_of(group):
        for index, server in enumerate(gateway.servers):
            by = next((each for each in bound if each.server.port.number == server.port.number), None)
            if (gateway.key, index) not in served and by is not None:
                yield LeftOut(gateway, server, by)


def unanswered(mesh: Mesh, bound: BoundServer, group: Group) -> str:
    """Return the reason why the gateway closes connections to the server `bound`, as text; "" if it does not close
    them. An HTTP server without routes is not closed: it responds with an HTTP status."""
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
    """The servers of a gateway whose connections are closed, in the form that `weft.explain` uses."""
    servers = []
    others = [*left_out(mesh, group)]
    for bound in mesh.scope(group).servers or ():
        if why := unanswered(mesh, bound, group):
            what = f"the server of Gateway {bound.gateway} there is {_protocol(bound.server)}, and {why}"
            for each in others:
                if each.by == bound:
                    what += f"; the server of Gateway {each.gateway.key} for {_protocol(each.server)} is left out"
            hosts = tuple(each.host for each in bound.hosts)
            servers.append(Closed(bound.listens, hosts, why, what, sources(bound.origin)))
    return tuple(servers)


def unsent(mesh: Mesh, group: Group, rule: DestinationRule, port: int, subset: str = "") -> str:
    """Return why calls to a host fail because of the Secret that its DestinationRule (`rule`) names for TLS: the Secret
    is missing or incomplete, or this group of proxies may not use it. "" if calls do not fail for such a reason. `port`
    and `subset`: those of the called cluster."""
    tls = effective(rule, port, next((each for each in rule.subsets if each.name == subset), None)).tls
    if tls is not None and tls.of_gateway and group.kind is ProxyKind.GATEWAY:
        return _uncertified(mesh, group)
    if tls is None or not tls.credential:
        return ""
    if group.kind is not ProxyKind.GATEWAY:
        return (
            f"its DestinationRule names Secret {tls.credential}, but only gateways can use Secrets: weft sends none to "
            "a sidecar"
        )
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


def _uncertified(mesh: Mesh, group: Group) -> str:
    """The reason why a gateway cannot present the client certificate of its Gateway to backends; "" if it can, or if
    the Gateway has none."""
    reference = mesh.client_certificate(group)
    if reference is None:
        return ""
    if not reference.name:
        return "the Gateway may not use the client certificate that it names in `tls.backend`"
    credential = mesh.credential(reference)
    named = f"the Secret {reference.namespace}/{reference.name} with the Gateway's client certificate"
    if credential is None:
        return f"{named} does not exist{_elsewhere(mesh, reference)}"
    return "" if credential.chain else f"{named} has no certificate with its key"


def _placed(reference: CredentialRef, group: Group) -> CredentialRef:
    return CredentialRef(reference.name, reference.namespace or group.namespace)


def _elsewhere(mesh: Mesh, wanted: CredentialRef) -> str:
    """A note for the message about a missing Secret, with the other namespaces that have a Secret of the same name,
    since the user often means one of these; "" if there is none."""
    namespaces = sorted(each.namespace for each in mesh.credentials() if each.name == wanted.name)
    return f" (there is one in {', '.join(namespaces)}; it must be in {wanted.namespace})" if namespaces else ""


def _protocol(server: GatewayServer) -> str:
    return str(server.port.protocol).upper()
