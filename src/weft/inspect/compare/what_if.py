"""Compute the effect of a change: compare two stages and return the changed objects, the changed resources of proxies,
and the requests whose outcome changes. To find these requests, it tries the requests that RequestTests declare, one
request from every group to every HTTP port, external requests through every gateway, and recent requests from access
logs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime

import msgspec
from envoy.config.route.v3.route_pb2 import RouteConfiguration

from weft.api.request_test import RequestCase
from weft.explain.decision import Kind
from weft.inspect.compare.changed_objects import Attribution, ChangedObject, changed_object, edits
from weft.inspect.compare.recent_traffic import SeenRequest, shape_of
from weft.inspect.compare.trial import JudgedRequest, Turned, every_call, judged
from weft.inspect.compare.unchanged import Unmoved, sent
from weft.inspect.stage import Stage
from weft.model.group import Group, ProxyKind
from weft.xds.types import ROUTE

_SHORT = {"Listener": "listener", "RouteConfiguration": "route", "Cluster": "cluster", "Secret": "secret"}
# Kinds of verdict for which the status comes from the application.
_OPEN = (Kind.DELIVERED, Kind.PASSED_ON, Kind.UNKNOWN)
MOST_CALLS = 2_000


class ChangedResource(msgspec.Struct, frozen=True):
    kind: str  # listener, route, cluster, endpoints, secret
    name: str
    what: str  # added, changed, removed


class ChangedProxies(msgspec.Struct, frozen=True):
    """The changed resources of the proxies of one group. `group`: its name. `pods`: the pods of these proxies."""

    group: str
    pods: tuple[str, ...]
    resources: tuple[ChangedResource, ...]


class RecentTraffic(msgspec.Struct, frozen=True):
    """The effect of a change on requests in access logs. `requests`: those whose outcome changes. `judged` and
    `unjudged` count all requests in the logs. A request is not judged if its recorded status does not follow from its
    URL: the status depends on something that is not recorded, such as a token, or the mesh has changed since."""

    judged: int = 0
    unjudged: int = 0
    requests: tuple[Turned, ...] = ()


class Retold(msgspec.Struct, frozen=True):
    """Groups of proxies that a change switches to on-demand CDS (`on_demand`), or away from it. In both cases, running
    proxies keep the resources that they have. `why`: the reason, as text."""

    groups: tuple[str, ...]
    on_demand: bool
    why: str


class Difference(msgspec.Struct, frozen=True):
    objects: tuple[ChangedObject, ...]
    proxies: tuple[ChangedProxies, ...]
    untouched: int  # number of groups without changes
    requests: tuple[Turned, ...]
    tried: int  # number of declared and generated requests
    recent: RecentTraffic = RecentTraffic()
    retold: tuple[Retold, ...] = ()


def difference(
    before: Stage, after: Stage, cases: Iterable[RequestCase], now: datetime, recent: Iterable[SeenRequest] = ()
) -> Difference:
    """Compute the difference between two stages. `cases`: declared requests, which are tried in addition to
    generated ones. `recent`: requests from access logs."""
    changes = edits(before.mesh, after.mesh)
    both = _Both(before, after, now, Attribution(before, changes, now))
    declared = tuple(cases)
    calls = {str(call): call for call in (*every_call(before, MOST_CALLS), *every_call(after, MOST_CALLS))}
    every = (*declared, *calls.values())
    proxies, untouched = both.proxies()
    return Difference(
        tuple(map(changed_object, changes)),
        proxies,
        untouched,
        tuple(both.turned(every)),
        len(every),
        both.recent(recent),
        both.retold(),
    )


class _Both:
    """The stages before and after a change. A request that the change cannot affect is evaluated once, or not at
    all."""

    def __init__(self, before: Stage, after: Stage, now: datetime, attribution: Attribution) -> None:
        self._before, self._after, self._now = before, after, now
        self._attribution = attribution
        self._unmoved = Unmoved(before, after)

    def turned(self, cases: Iterable[RequestCase]) -> Iterator[Turned]:
        if self._unmoved.everything():
            return
        for case in cases:
            was = judged(self._before, case, self._now)
            becomes = self._becomes(case, was)
            if was.ways != becomes.ways:
                yield Turned(str(case), was.ways, becomes.ways, case.where, self._attribution.of(case, was, becomes))

    def recent(self, recent: Iterable[SeenRequest]) -> RecentTraffic:
        counted, uncounted = 0, 0
        turned: list[Turned] = []
        for seen in recent:
            case = seen.case
            was = judged(self._before, case, self._now, shape_of)
            if not _agrees(was, seen.status):
                uncounted += seen.count
                continue
            counted += seen.count
            becomes = self._becomes(case, was, shape_of)
            if was.ways != becomes.ways:
                because = self._attribution.of(case, was, becomes)
                turned.append(Turned(str(seen), was.ways, becomes.ways, because=because, count=seen.count))
        return RecentTraffic(counted, uncounted, tuple(turned))

    def _becomes(self, case: RequestCase, was: JudgedRequest, shown: Callable[[str], str] = str) -> JudgedRequest:
        return was if self._unmoved.all_of(was.met.groups) else judged(self._after, case, self._now, shown)

    def proxies(self) -> tuple[tuple[ChangedProxies, ...], int]:
        """The groups whose proxies get changed resources, and the number of groups without changes."""
        before, after = self._before, self._after
        was, becomes = before.groups(), after.groups()
        changed: list[ChangedProxies] = []
        untouched = 0
        every = sorted({*was, *becomes})
        for group in every:
            if group in was and group in becomes and self._unmoved.is_sent_the_same(group):
                untouched += 1
                continue
            old = sent(before, group) if group in was else {}
            new = sent(after, group) if group in becomes else {}
            changes = tuple(
                ChangedResource(_kind(type_url), name, _what(old.get((type_url, name)), new.get((type_url, name))))
                for type_url, name in sorted({*old, *new})
                if old.get((type_url, name)) != new.get((type_url, name))
                and not _is_moved(before, after, group, type_url, name)
            )
            if changes:
                changed.append(ChangedProxies(_title(group, every), tuple(becomes.get(group) or was[group]), changes))
            else:
                untouched += 1
        return tuple(changed), untouched

    def retold(self) -> tuple[Retold, ...]:
        before, after = self._before.mesh, self._after.mesh
        switched: dict[tuple[bool, str], list[str]] = {}
        every = sorted({*self._before.groups()} & {*self._after.groups()})
        for group in every:
            if group.kind is ProxyKind.SIDECAR:
                was, becomes = (mesh.on_demand(mesh.scope(group)) for mesh in (before, after))
                if was.on != becomes.on:
                    switched.setdefault((becomes.on, str(becomes)), []).append(_title(group, every))
        return tuple(Retold(tuple(groups), on, why) for (on, why), groups in switched.items())


def _agrees(was: JudgedRequest, status: int) -> bool:
    """Whether the outcome that is predicted from the URL alone (`was`) agrees with the recorded status. It does not
    agree if, for example, the request was allowed because of its token, which the log does not contain."""
    if was.explanation is None:
        return False
    verdicts = [outcome.verdict for outcome in was.explanation.outcomes]
    return any(verdict.kind in _OPEN or verdict.status == status for verdict in verdicts)


def _title(group: Group, every: Iterable[Group]) -> str:
    """The group's name, with the labels or account that distinguish it from groups of the same name in `every`."""
    alike = [each for each in every if str(each) == str(group)]
    if len(alike) == 1:
        return str(group)
    common = frozenset.intersection(*(frozenset(each.labels) for each in alike))
    words = [f"{name}={value}" for name, value in group.labels if (name, value) not in common]
    if len({each.service_account for each in alike}) > 1:
        words.append(f"as {group.service_account}")
    return f"{group} {','.join(words) or 'without more labels'}"


def _is_moved(before: Stage, after: Stage, group: Group, type_url: str, name: str) -> bool:
    """Whether the route configuration `name` of a group differs between the stages `before` and `after` only in the
    files and lines of its objects."""
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


def _what(old: str | bytes | None, new: str | bytes | None) -> str:
    return "added" if old is None else "removed" if new is None else "changed"
