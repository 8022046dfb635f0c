"""What stays as it is when a mesh becomes another: two stages come in, and out goes whether what happens to a request
can have changed at all. Most requests never meet what a change is about.

Rule: a request ends as it did if nobody has come, gone or moved, and every proxy that was asked is sent the same bytes.
Where all objects say what they said, nothing has to be translated to know that.
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

# Kinds that reach a request only by what proxies are sent. Of all others a stage knows something of its own: names,
# addresses, who listens.
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
        """Whether a request ends as it did whose way leads by the proxies of these groups, and no others."""
        return self._world and all(map(self.is_sent_the_same, met))

    def is_sent_the_same(self, group: Group) -> bool:
        if self._nothing:
            return True
        if group not in self._groups:
            self._groups[group] = sent(self._before, group) == sent(self._after, group)
        return self._groups[group]


def sent(stage: Stage, group: Group) -> dict[tuple[str, str], str | bytes]:
    """By type and name: what a proxy of the group is sent, or a digest of it. Of secrets it is all but the key, which
    the past does not remember: without another certificate, there is no other key."""
    secrets = stage.resources(group, (SECRET,))[SECRET]
    return {**stage.versions(group), **{(SECRET, name): _without_key(body) for name, body in secrets.items()}}


def _without_key(body: bytes) -> bytes:
    secret = Secret.FromString(body)
    if secret.HasField("tls_certificate"):
        secret.tls_certificate.ClearField("private_key")
    shown: bytes = secret.SerializeToString(deterministic=True)
    return shown


def _others(before: Mesh, after: Mesh) -> set[str]:
    """Kinds of which an object says something else than before."""
    old, new = dict(before.values()), dict(after.values())
    return {
        key.kind
        for key in {*old, *new}
        if old.get(key, ()) != new.get(key, ()) and meaning(old.get(key, ())) != meaning(new.get(key, ()))
    }


def _keys(mesh: Mesh) -> Iterable[ObjectKey]:
    return (key for key, _ in mesh.values())
