"""Retries secrets that proxies reject because their files do not exist, cannot be read, or do not belong together.

No object is wrong then, and no object changes when the files are corrected, so the secrets are sent again periodically.
Envoy stores the hash of a secret before it opens the files: if it got the same bytes again, it would accept them
without reading the files, and have no secret. So each retry has different bytes than the last.
"""

from __future__ import annotations

import asyncio
from functools import partial

import msgspec
from envoy.extensions.transport_sockets.tls.v3.secret_pb2 import Secret

from weft.base.backoff import Backoff
from weft.model.group import Group
from weft.translate.built import build
from weft.xds.snapshot import Snapshots
from weft.xds.table import Resource
from weft.xds.types import SECRET

_FIRST_SECONDS = 2.0
_SUFFIX = "/."  # appended to a directory: the same directory, in different bytes


class _Unread(msgspec.Struct):
    version: str  # the last rejected version
    backoff: Backoff
    timer: asyncio.TimerHandle | None = None


class Rereading:
    def __init__(self, snapshots: Snapshots) -> None:
        self._snapshots = snapshots
        self._unread: dict[tuple[Group, str], _Unread] = {}

    def refused(self, group: Group, name: str, version: str) -> bool:
        """Schedule a retry of the secret `name`, which was rejected in this `version`, if Envoy reads the secret from
        files. Returns whether a retry is scheduled."""
        resource = self._resource(group, name)
        if resource is None or not _is_in_files(resource):
            return False
        unread = self._unread.setdefault((group, name), _Unread(version, Backoff(first=_FIRST_SECONDS)))
        unread.version = version
        if unread.timer is None:
            again = partial(self._send, group, name, unread)
            unread.timer = asyncio.get_running_loop().call_later(unread.backoff.next(), again)
        return True

    def accepted(self, group: Group) -> None:
        """Stop retrying the secrets that a proxy of the group has accepted."""
        for (of, name), unread in tuple(self._unread.items()):
            accepted = self._snapshots.accepted(group, SECRET, name) if of == group else None
            if accepted is not None and accepted.version != unread.version:
                self._drop(group, name)

    def forget(self, group: Group) -> None:
        for name in [name for of, name in self._unread if of == group]:
            self._drop(group, name)

    def is_trying(self, group: Group, name: str) -> bool:
        """Whether the secret was sent again, and no proxy has acknowledged or rejected it yet."""
        return (group, name) in self._unread and name in self._snapshots.resources(group, SECRET)

    def _send(self, group: Group, name: str, unread: _Unread) -> None:
        unread.timer = None
        resource = self._resource(group, name)
        if resource is not None and resource.version == unread.version:
            self._snapshots.update(group, {SECRET: {name: _in_other_bytes(resource)}})

    def _resource(self, group: Group, name: str) -> Resource | None:
        rejected = self._snapshots.rejected(group).get((SECRET, name))
        return rejected.resource if rejected else self._snapshots.resources(group, SECRET).get(name)

    def _drop(self, group: Group, name: str) -> None:
        timer = self._unread.pop((group, name)).timer
        if timer is not None:
            timer.cancel()


def _is_in_files(resource: Resource) -> bool:
    secret = Secret.FromString(resource.body)
    return bool(secret.tls_certificate.watched_directory.path or secret.validation_context.watched_directory.path)


def _in_other_bytes(resource: Resource) -> Resource:
    secret = Secret.FromString(resource.body)
    watched = getattr(secret, secret.WhichOneof("type")).watched_directory
    plain = watched.path.removesuffix(_SUFFIX)
    watched.path = plain if plain != watched.path else watched.path + _SUFFIX
    return build(resource.name, secret, getattr(resource, "sources", ()))
