"""Watches the ConfigMaps with CA certificates, for TLS to backends and for a Gateway's client certificates, and adds
the CA certificates to the mesh.

A ConfigMap is watched as long as a BackendTLSPolicy or a Gateway names it. Rule: no other ConfigMap is read, and only
its CA certificates are used: its other keys are never read as settings of the mesh, whatever their names.
"""

from __future__ import annotations

from weft.api.authorities import authorities
from weft.api.document import Change
from weft.cluster.named_objects import NamedObjects
from weft.control.plane import ControlPlane
from weft.kube.client import Client
from weft.kube.reflector import WatchTiming
from weft.kube.singles import BACKEND_AUTHORITIES, Name, Singles
from weft.mesh.mesh import Mesh
from weft.model.gateway_api import GATEWAY_KIND, AuthorityBundle, BackendTls, StandardGateway

_KINDS = ("BackendTLSPolicy", GATEWAY_KIND)


class BackendAuthorities:
    """Watches the ConfigMaps with CA certificates that other objects name. `own`: the ConfigMap with the mesh's
    settings, which another module reads and which is never used as CA certificates."""

    def __init__(self, client: Client, plane: ControlPlane, own: Name, timing: WatchTiming = WatchTiming()) -> None:  # noqa: B008
        self._config_maps = NamedObjects(
            Singles(client, BACKEND_AUTHORITIES, timing),
            lambda: (name for name in named(plane.mesh) if name != own),
            lambda changes: plane.apply((), None, [(change.key, _bundles(change)) for change in changes]),
            lambda problems: plane.note("authorities", problems),
        )
        plane.on_change.append(self._config_maps.look_if(lambda key: key.kind in _KINDS))

    async def run(self) -> None:
        """Watch the ConfigMaps until cancelled."""
        await self._config_maps.run()


def named(mesh: Mesh) -> tuple[Name, ...]:
    """Return the ConfigMaps that policies and Gateways name; those that the oldest object names are first."""
    by_age: list[tuple[str, str, str, tuple[Name, ...]]] = []
    for key, values in mesh.values():
        for value in values if key.kind in _KINDS else ():
            if isinstance(value, BackendTls):
                names = tuple((value.namespace, name) for name in value.bundles)
            elif isinstance(value, StandardGateway):
                names = value.bundles
            else:
                continue
            by_age.append((value.created or "9999", value.namespace, value.name, names))
    return tuple(dict.fromkeys(name for *_, names in sorted(by_age) for name in names))


def _bundles(change: Change) -> tuple[AuthorityBundle, ...]:
    roots = authorities(change.document.body) if change.document is not None else ""
    return (AuthorityBundle(change.key.name, change.key.namespace, roots),) if roots else ()
