"""Decide whether a change can affect the outcome of a request, so that the requests that it cannot affect are
skipped. Input: the stages before and after the change.

Rule: a request has the same outcome if no workload or address changed, and every proxy on its path is sent the same
bytes. If all objects are equal, the proxies' config is equal too and need not be translated.
"""

from __future__ import annotations

from collections.abc import Iterable

from envoy.extensions.transport_sockets.tls.v3.secret_pb2 import Secret

from weft.inspect.compare.changed_objects import meaning
from weft.inspect.stage import Stage
from weft.mesh.mesh import Mesh
from weft.model.group import Group
from weft.model.names import ObjectKey
from weft.xds.types import SECRET

# Kinds of objects that affect a request only through the config of proxies. Other kinds also affect names, addresses
# and listening ports in the stage.
_BY_PROXIES = frozenset(
    {"VirtualService", "DestinationRule", "AuthorizationPolicy", "PeerAuthentication", "RequestAuthentication"}
)


class Unmoved:
    def __init__(self, before: Stage, after: Stage) -> None:
        self._before, self._after = before, after
        same, others = before.mesh.settings == after.mesh.settings, _others(before.mesh, after.mesh)
        self._nothing = same and not others and [*_keys(before.mesh)] == [*_keys(after.mesh)]
        self._world = same and others <= _BY_PROXIES
        self._groups: dict[Group, bool] = {}

    def everything(self) -> bool:
        return self.all_of({*self._before.groups(), *self._after.groups()})

    def all_of(self, met: Iterable[Group]) -> bool:
        """Whether a request that passes only proxies of the groups `met` has the same outcome before and after the
        change: no workload or address has changed, and all these proxies are sent the same."""
        return self._world and all(map(self.is_sent_the_same, met))

    def is_sent_the_same(self, group: Group) -> bool:
        if self._nothing:
            return True
        if group not in self._groups:
            self._groups[group] = sent(self._before, group) == sent(self._after, group)
        return self._groups[group]


def sent(stage: Stage, group: Group) -> dict[tuple[str, str], str | bytes]:
    """Return what a proxy of the group is sent, in a form that can be compared: (type, name) -> for a secret its
    content, for any other resource its version. Private keys are removed from secrets, because the history does not
    keep them; a new key comes with a new certificate."""
    secrets = stage.resources(group, (SECRET,))[SECRET]
    return {**stage.versions(group), **{(SECRET, name): _without_key(body) for name, body in secrets.items()}}


def _without_key(body: bytes) -> bytes:
    secret = Secret.FromString(body)
    if secret.HasField("tls_certificate"):
        secret.tls_certificate.ClearField("private_key")
    shown: bytes = secret.SerializeToString(deterministic=True)
    return shown


def _others(before: Mesh, after: Mesh) -> set[str]:
    """The kinds of objects in which the meshes `before` and `after` differ: at least one object of the kind was added,
    removed or changed."""
    old, new = dict(before.values()), dict(after.values())
    return {
        key.kind
        for key in {*old, *new}
        if old.get(key, ()) != new.get(key, ()) and meaning(old.get(key, ())) != meaning(new.get(key, ()))
    }


def _keys(mesh: Mesh) -> Iterable[ObjectKey]:
    return (key for key, _ in mesh.values())
