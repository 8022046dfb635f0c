"""The hosts that have been translated, and which viewer sees which of them: the state of step 4 (`contribute.py`) that
is kept for the next push.

Other steps read which viewers see a host, which hosts a viewer sees, and which hosts name another host in their routes.
Rule: only `contribute.py` writes this state.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Set

import msgspec

from weft.control.push.viewpoints import Viewer, Viewpoint
from weft.model.group import Group
from weft.model.settings import Settings
from weft.translate.contribution import Contribution
from weft.translate.view import GroupView, ServiceView


class Translated(msgspec.Struct, frozen=True, eq=False):
    """One view of a host, and its translation. All viewers with an equal view and equal settings share one instance."""

    view: ServiceView
    settings: Settings
    contribution: Contribution


class TranslatedHosts:
    def __init__(self) -> None:
        self._by_view: dict[str, dict[tuple[ServiceView, Settings], Translated]] = {}  # by host
        self._readers: dict[str, set[str]] = {}  # host → hosts whose routes name it
        self._viewers: dict[str, dict[Viewer, Translated]] = {}  # by host
        self._hosts: dict[Viewer, set[str]] = defaultdict(set)  # viewer → hosts that it sees
        self._per_group: dict[Viewpoint, set[str]] = defaultdict(set)
        self._group_views: dict[Group, GroupView] = {}

    # Reading

    def viewers(self, host: str) -> Mapping[Viewer, Translated]:
        return self._viewers.get(host, {})

    def hosts(self, viewer: Viewer) -> Set[str]:
        """Return the hosts that are translated for this viewer: for a viewpoint, those that all of its groups see
        alike; for a group, those that are translated for this group alone."""
        return self._hosts.get(viewer, frozenset())

    def per_group(self, viewpoint: Viewpoint) -> Set[str]:
        """Return the hosts that are translated separately for each group of the viewpoint, because the group's labels
        matter."""
        return self._per_group.get(viewpoint, frozenset())

    def all_hosts(self, viewpoint: Viewpoint) -> frozenset[str]:
        return frozenset({*self.hosts(viewpoint), *self.per_group(viewpoint)})

    def own_hosts(self, viewpoint: Viewpoint, touched: Set[str]) -> dict[Group, set[str]]:
        """Return, for each group of the viewpoint, which of the touched hosts are translated separately for this
        group and not for the whole viewpoint."""
        common = {host for host in touched if host in self.per_group(viewpoint)}
        own = {group: self._hosts[group] & touched for group in viewpoint.groups if group in self._hosts}
        return {group: hosts for group in viewpoint.groups if (hosts := common | own.get(group, set()))}

    def seen_by(self, group: Group, viewpoint: Viewpoint | None, host: str) -> Translated | None:
        """Return the translation of the host for the group: the group's own, else the one that all groups of its
        viewpoint share; None if the group does not see the host."""
        viewers = self.viewers(host)
        return viewers.get(group) or (viewers.get(viewpoint) if viewpoint is not None else None)

    def group_view(self, group: Group) -> GroupView | None:
        """Return the view from which the group's own listeners were translated; None if the group has not been
        translated yet."""
        return self._group_views.get(group)

    def readers(self, hosts: Iterable[str]) -> set[str]:
        """Return the hosts whose routes name any of `hosts`."""
        return {reader for host in hosts for reader in self._readers.get(host, ())}

    def find(self, view: ServiceView, settings: Settings) -> Translated | None:
        return self._by_view.get(view.host, {}).get((view, settings))

    # Writing, for `contribute.py`

    def add(self, translated: Translated) -> None:
        view = translated.view
        self._by_view.setdefault(view.host, {})[(view, translated.settings)] = translated
        for target in view.targets:
            self._readers.setdefault(target.host, set()).add(view.host)

    def outdate(self, host: str) -> None:
        """Drop the cached translations of a host that may have changed. Viewers keep theirs until they are translated
        again."""
        self._forget_targets(host, self._by_view.pop(host, {}).values())

    def prune(self, host: str) -> Collection[Translated]:
        """Keep only the translations of the host that some viewer sees, and return them."""
        seen = dict.fromkeys(self.viewers(host).values())
        self.outdate(host)
        for translated in seen:
            self.add(translated)
        if not seen:
            self._viewers.pop(host, None)
        return seen.keys()

    def show(self, viewer: Viewer, host: str, translated: Translated | None, *, per_group: bool = False) -> bool:
        """Record that the viewer sees the host as `translated`. None: the viewer does not see the host, or is a
        viewpoint each of whose groups has its own translation of the host (`per_group`). Returns whether the viewer had
        another translation of the host before; False if it had none."""
        before = self.viewers(host).get(viewer)
        if translated is not None:
            self._viewers.setdefault(host, {})[viewer] = translated
            self._hosts[viewer].add(host)
        elif before is not None:
            del self._viewers[host][viewer]
            self._hosts[viewer].discard(host)
        if isinstance(viewer, Viewpoint):
            (self._per_group[viewer].add if per_group else self._per_group[viewer].discard)(host)
        return before is not None and before is not translated

    def show_group(self, group: Group, view: GroupView) -> None:
        self._group_views[group] = view

    def forget(self, viewer: Viewer) -> set[str]:
        """Drop a viewer that no longer exists. Returns the hosts that it saw."""
        hosts = self._hosts.pop(viewer, set())
        for host in hosts:
            self._viewers[host].pop(viewer, None)
        if isinstance(viewer, Viewpoint):
            self._per_group.pop(viewer, None)
        else:
            self._group_views.pop(viewer, None)
        return hosts

    def _forget_targets(self, host: str, translations: Iterable[Translated]) -> None:
        for translated in translations:
            for target in translated.view.targets:
                readers = self._readers.get(target.host)
                if readers is not None:
                    readers.discard(host)
                    if not readers:
                        del self._readers[target.host]
