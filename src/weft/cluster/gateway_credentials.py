"""Watches the Secrets that the gateways of a cluster need, and adds them to the mesh.

A Secret is watched as long as it is named by a Gateway that a gateway pod serves, or by a DestinationRule for a host
that the gateway's routes lead to. Rule: no other Secret is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from weft.cluster.named_objects import NamedObjects
from weft.control.plane import ControlPlane
from weft.kube.client import Client
from weft.kube.pods import PodIndex, PodRecord
from weft.kube.reflector import WatchTiming
from weft.kube.singles import GATEWAY_SECRETS, Name, Singles
from weft.mesh.gateways import age, references
from weft.mesh.mesh import Mesh
from weft.model.destination_rule import credentials_of
from weft.model.edge import AUTHORITIES
from weft.model.gateway_api import LISTENER_SET, RouteKind
from weft.model.group import Group, ProxyKind
from weft.model.names import CredentialRef, ObjectKey

# Kinds of the other objects that decide which Secrets gateways need. ReferenceGrants, labels of Namespaces and
# ConfigMaps with CA certificates decide whether a listener of the Gateway API may be served with its Secret.
_LEADING = frozenset(
    {
        *(LISTENER_SET, "ReferenceGrant", "Namespace", "ConfigMap"),
        *("DestinationRule", "VirtualService", "Service", "ServiceEntry", *RouteKind),
    }
)


class GatewayCredentials:
    def __init__(
        self,
        client: Client,
        plane: ControlPlane,
        pods: PodIndex,
        timing: WatchTiming = WatchTiming(),  # noqa: B008
    ) -> None:
        self._plane, self._pods = plane, pods
        self._secrets = NamedObjects(
            Singles(client, GATEWAY_SECRETS, timing),
            self._wanted,
            lambda changes: plane.apply(changes, None),
            lambda problems: plane.note("credentials", problems),
        )
        plane.on_change.append(self._secrets.look_if(_may_name))
        pods.on_change.append(self._on_pod)

    async def run(self) -> None:
        """Watch the Secrets until cancelled."""
        await self._secrets.run()

    def _on_pod(self, before: PodRecord | None, after: PodRecord | None) -> None:
        if any(record is not None and record.group.kind is ProxyKind.GATEWAY for record in (before, after)):
            self._secrets.look()

    def _wanted(self) -> tuple[Name, ...]:
        groups = {record.group for record in self._pods if record.group.kind is ProxyKind.GATEWAY}
        return named(self._plane.mesh, groups)


def _may_name(key: ObjectKey) -> bool:
    # "Gateway" is also the prefix of the Gateway API's kinds. Routes decide which DestinationRules count.
    return key.kind.startswith("Gateway") or key.kind in _LEADING


def named(mesh: Mesh, groups: Iterable[Group]) -> tuple[Name, ...]:
    """Return the Secrets that Gateways and DestinationRules name for these groups of gateway pods, the most
    important first. A Secret named without a namespace is in the gateway's namespace. The order is: Secrets of
    servers that a gateway serves, Secrets of servers that it leaves out (both by the age of their Gateway, the
    oldest first), Secrets of DestinationRules. Because of this order, a new object that names many Secrets does
    not displace the Secrets of older objects when there are too many to watch, even after a restart."""
    ordered: list[tuple[tuple[object, ...], Name]] = []
    for group in groups:
        for order, reference in (*_shown(mesh, group), *_taken_along(mesh, group)):
            ordered.append((order, (reference.namespace or group.namespace, reference.name)))
    return tuple(dict.fromkeys(name for _, name in sorted(ordered)))


def _shown(mesh: Mesh, group: Group) -> Iterator[tuple[tuple[object, ...], CredentialRef]]:
    served = {(each.gateway, each.index) for each in mesh.scope(group).servers or ()}
    for gateway in mesh.gateways_of(group):
        if gateway.client_certificate is not None and gateway.client_certificate.name:
            yield (0, age(gateway), 0), gateway.client_certificate
        for index, server in enumerate(gateway.servers):
            left_out = (gateway.key, index) not in served
            for reference in references(server.tls):
                yield (1 if left_out else 0, age(gateway), index), reference


def _taken_along(mesh: Mesh, group: Group) -> Iterator[tuple[tuple[object, ...], CredentialRef]]:
    """Yield the Secrets for TLS origination of a gateway, each with its sort key. DestinationRules of the hosts that
    the gateway's routes lead to name these Secrets."""
    scope = mesh.scope(group)
    for host in sorted(mesh.edge(scope).destinations):
        rule = mesh.destination_rule(host, mesh.service(host, scope), group)
        for name in sorted(credentials_of(rule)):
            order = (2, (rule.created if rule and rule.created else "9999", host), 0)
            yield from ((order, CredentialRef(each)) for each in (name, f"{name}{AUTHORITIES}"))
