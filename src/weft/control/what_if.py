"""What a change would change: two stages come in, and out goes which proxies would be sent what, resource by resource,
and to which requests something else would happen."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

import msgspec
from envoy.config.route.v3.route_pb2 import RouteConfiguration

from weft.api.request_test import RequestCase
from weft.control.stage import Stage
from weft.control.trial import Turned, every_call, turned
from weft.model.group import Group
from weft.xds.types import ROUTE

_SHORT = {"Listener": "listener", "RouteConfiguration": "route", "Cluster": "cluster"}
MOST_CALLS = 2_000


class ChangedResource(msgspec.Struct, frozen=True):
    kind: str  # listener, route, cluster, endpoints
    name: str
    what: str  # added, changed, removed


class ChangedProxies(msgspec.Struct, frozen=True):
    """Proxies of one group change alike."""

    group: str
    pods: tuple[str, ...]
    resources: tuple[ChangedResource, ...]


class Difference(msgspec.Struct, frozen=True):
    proxies: tuple[ChangedProxies, ...]
    untouched: int  # groups that are sent nothing
    requests: tuple[Turned, ...]
    tried: int  # requests


def difference(before: Stage, after: Stage, cases: Iterable[RequestCase], now: datetime) -> Difference:
    """`cases`: the requests that somebody has declared; a call of everybody by everybody is tried too."""
    was, becomes = before.groups(), after.groups()
    changed: list[ChangedProxies] = []
    untouched = 0
    for group in sorted({*was, *becomes}):
        old = before.versions(group) if group in was else {}
        new = after.versions(group) if group in becomes else {}
        found = tuple(
            ChangedResource(_kind(type_url), name, _what(old.get((type_url, name)), new.get((type_url, name))))
            for type_url, name in sorted({*old, *new})
            if old.get((type_url, name)) != new.get((type_url, name))
            and not _is_moved(before, after, group, type_url, name)
        )
        if found:
            changed.append(ChangedProxies(str(group), tuple(becomes.get(group) or was[group]), found))
        else:
            untouched += 1
    declared = tuple(cases)
    calls = {str(call): call for call in (*every_call(before, MOST_CALLS), *every_call(after, MOST_CALLS))}
    every = (*declared, *calls.values())
    return Difference(tuple(changed), untouched, tuple(turned(before, after, every, now)), len(every))


def _is_moved(before: Stage, after: Stage, group: Group, type_url: str, name: str) -> bool:
    """Whether only the place is another, in a file or of a file, from which a route comes."""
    if type_url != ROUTE:
        return False
    bodies = [stage.resources(group)[ROUTE].get(name) for stage in (before, after)]
    meanings = [_without_places(body) if body is not None else None for body in bodies]
    return meanings[0] == meanings[1]


def _without_places(body: bytes) -> bytes:
    configuration = RouteConfiguration.FromString(body)
    for host in configuration.virtual_hosts:
        host.ClearField("metadata")
        for route in host.routes:
            route.ClearField("metadata")
    meaning: bytes = configuration.SerializeToString(deterministic=True)
    return meaning


def _kind(type_url: str) -> str:
    return _SHORT.get(type_url.rpartition(".")[2], "endpoints")


def _what(old: str | None, new: str | None) -> str:
    return "added" if old is None else "removed" if new is None else "changed"
