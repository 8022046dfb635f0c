"""Translation, shared: what looks the same to several groups is made once, and kept while anybody sees it.

`push.py` comes in with views and leaves with contributions and assignments. Rule: a view is the whole of what its
contribution depends on, so whoever has an equal one gets the same.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable
from weakref import WeakValueDictionary

import msgspec

from weft.mesh.mesh import Mesh
from weft.model.destination_rule import DestinationRule, LocalitySetting
from weft.model.group import ProxyKind
from weft.model.locality import Whereabouts
from weft.model.service import Service
from weft.model.settings import Settings
from weft.translate import endpoints, routes
from weft.translate.built import Built
from weft.translate.contribution import Contribution, VirtualHost
from weft.translate.service import contribute
from weft.translate.view import GroupView, ServiceView

_Key = tuple[ServiceView, Settings]
AssignmentKey = tuple[Service, DestinationRule | None, ProxyKind, Whereabouts | None, LocalitySetting]


class Made(msgspec.Struct, frozen=True, eq=False):
    view: ServiceView  # the one that all groups with an equal view keep
    settings: Settings
    contribution: Contribution


class Translation:
    def __init__(self, mesh: Mesh) -> None:
        self._mesh = mesh
        self.fresh: set[str] = set()  # hosts of which something was made that nobody has looked at yet
        self._made: dict[str, dict[_Key, Made]] = defaultdict(dict)  # host → views, made once for all groups
        self._assigned: dict[str, dict[AssignmentKey, tuple[Built, ...]]] = defaultdict(dict)
        self._configurations: WeakValueDictionary[tuple[object, ...], Built] = WeakValueDictionary()
        self._readers: dict[str, set[str]] = defaultdict(set)  # host → hosts whose routes name it
        self.spent = 0.0  # CPU seconds so far

    def make(self, view: ServiceView, settings: Settings) -> Made:
        """Once for all that see it the same."""
        made = self._made[view.host].get((view, settings))
        if made is None:
            started = time.thread_time()
            made = self._made[view.host][(view, settings)] = Made(view, settings, contribute(view, settings))
            self.fresh.add(view.host)
            for target in view.targets:
                self._readers[target.host].add(view.host)
            self.spent += time.thread_time() - started
        return made

    def assignments(self, made_for: Made | None) -> tuple[Built, ...]:
        view = made_for.view if made_for else None
        if made_for is None or view is None or view.service is None:
            return ()
        known = self._assigned[view.host]
        service = view.service
        key = (service, view.rule, view.caller.kind, view.caller.whereabouts, made_for.settings.locality)
        made = known.get(key)
        if made is None:
            made = known[key] = tuple(
                assignment
                for port in service.ports
                for assignment in endpoints.assignments(
                    service,
                    port,
                    view.rule,
                    self._mesh.endpoints(service, port),
                    view.caller.kind,
                    view.caller.whereabouts,
                    made_for.settings.locality,
                )
            )
        return made

    def configuration(self, name: str, hosts: tuple[VirtualHost, ...], view: GroupView) -> Built:
        key = (name, view.policy, *hosts)
        made = self._configurations.get(key)
        if made is None:
            made = self._configurations[key] = routes.configuration(name, hosts, view.policy)
        return made

    def forget(self, hosts: frozenset[str]) -> frozenset[str]:
        """These may be others now. Returns them with those whose routes name them, which may then, too."""
        hosts |= {reader for host in hosts for reader in self._readers.pop(host, ())}
        for host in hosts:
            self._made.pop(host, None)
            self._assigned.pop(host, None)
        return hosts

    def forget_assignments(self, host: str) -> None:
        self._assigned.pop(host, None)

    def keep(self, host: str, seen: Iterable[Made]) -> None:
        """Of a host, nothing else is seen by anybody."""
        self._made[host] = {(made.view, made.settings): made for made in seen}
        if not self._made[host]:
            del self._made[host]
