"""Step 4 of a push, contribute: translates views into what each host contributes to the config of a viewer.

Input: `Views`. Output: `Pieces`, by host: a `Contribution` and the load assignments. `weft.translate` translates once
for all viewers with an equal view; `translated.py` keeps the result while any viewer sees it. `settle` returns the
problems of translating a host. Rules: a view is all that a contribution depends on, so equal views share one. A host
that cannot be translated is left out, so that its config stays unchanged.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping

import msgspec

from weft.base.problem import Problem
from weft.control.push.translated import Translated, TranslatedHosts
from weft.control.push.view import Views
from weft.control.push.viewpoints import Failed, Viewer
from weft.mesh.mesh import Mesh
from weft.model.destination_rule import DestinationRule, LocalitySetting
from weft.model.group import Group, ProxyKind
from weft.model.locality import Whereabouts
from weft.model.service import Service
from weft.model.settings import Settings
from weft.translate import endpoints
from weft.translate.built import Built
from weft.translate.contribution import Contribution
from weft.translate.findings import problems_of
from weft.translate.service import base, contribute
from weft.translate.view import GroupView, ServiceView

log = logging.getLogger(__name__)

NOTHING = Contribution()

Assignments = dict[str, tuple[Built, ...]]  # host → its load assignments
_AssignmentKey = tuple[Service, DestinationRule | None, ProxyKind, Whereabouts | None, LocalitySetting]


class Pieces(msgspec.Struct, frozen=True, eq=False):
    """What hosts contribute to the config of one viewer, by host. `touched`: the hosts that may have changed for this
    viewer. A host that the viewer no longer sees has the contribution `NOTHING` and no load assignments."""

    viewer: Viewer
    touched: frozenset[str]
    contributions: dict[str, Contribution]
    assignments: Assignments


class OwnPiece(msgspec.Struct, frozen=True, eq=False):
    """What a group contributes to its own config, independent of hosts (`contribution`), such as its own listeners, and
    the `view` from which it was translated."""

    view: GroupView
    contribution: Contribution


class ContributeStep:
    def __init__(self, mesh: Mesh, translated: TranslatedHosts) -> None:
        self._mesh = mesh
        self._translated = translated
        # Host → load assignments by what they depend on.
        self._assignments: dict[str, dict[_AssignmentKey, tuple[Built, ...]]] = defaultdict(dict)
        self._unsettled: set[str] = set()  # hosts whose translation for some viewer may have changed in this push

    def outdate(self, hosts: Iterable[str]) -> None:
        """Drop the cached translations of these hosts, because they may have changed."""
        for host in hosts:
            self._translated.outdate(host)
            self._assignments.pop(host, None)
            self._unsettled.add(host)

    def translate(self, views: Iterable[Views]) -> list[Pieces]:
        return [self._pieces(of_viewer) for of_viewer in views]

    def translate_groups(self, views: Mapping[Group, GroupView], failed: Failed) -> dict[Group, OwnPiece]:
        """Translate those of `views` that have changed, and return what each group contributes to its own config.
        Groups in `failed` are left out, and a group that cannot be translated is added to it."""
        changed: dict[Group, OwnPiece] = {}
        for group, view in views.items():
            if group not in failed and view != self._translated.group_view(group):
                try:
                    changed[group] = OwnPiece(view, base(view))
                    self._translated.show_group(group, view)
                except Exception as error:  # noqa: BLE001 - reported at the end of the push
                    failed[group] = error
        return changed

    def reassign(self, hosts: Iterable[str]) -> dict[Viewer, Assignments]:
        """Return new load assignments, for each viewer, of hosts of which only the endpoints have changed. Viewers
        share the same bytes for a host if its service, DestinationRule and locality settings are the same for them, and
        their own kind and locality, too."""
        changed: dict[Viewer, Assignments] = defaultdict(dict)
        for host in hosts:
            self._assignments.pop(host, None)
            for viewer, translated in self._translated.viewers(host).items():
                changed[viewer][host] = self._assign(translated)
        return changed

    def forget(self, viewer: Viewer) -> None:
        """Drop everything that is stored for a viewer that no longer exists."""
        self._unsettled |= self._translated.forget(viewer)

    def settle(self) -> dict[str, list[Problem]]:
        """End a push: drop translations that no viewer sees any more. Returns the problems of translation for each host
        whose translation may have changed for some viewer."""
        problems: dict[str, list[Problem]] = {}
        for host in self._unsettled:
            views = dict.fromkeys(translated.view for translated in self._translated.prune(host))
            problems[host] = sorted({problem for view in views for problem in problems_of(view, self._mesh)}, key=str)
        self._unsettled.clear()
        return problems

    def _pieces(self, views: Views) -> Pieces:
        contributions: dict[str, Contribution] = {}
        assignments: Assignments = {}
        for host, view in views.hosts.items():
            try:
                translated = self._translate(view, views.settings) if view is not None else None
                assignments[host] = self._assign(translated)
            except Exception:  # a defect with one host must not delay the changes of others
                log.exception("cannot translate %s for %s; its config stays unchanged", host, views.viewer)
                continue
            contributions[host] = translated.contribution if translated is not None else NOTHING
            if self._translated.show(views.viewer, host, translated, per_group=host in views.per_group):
                self._unsettled.add(host)  # the previous translation may have no viewer now
        return Pieces(views.viewer, views.touched, contributions, assignments)

    def _translate(self, view: ServiceView, settings: Settings) -> Translated:
        translated = self._translated.find(view, settings)
        if translated is None:
            translated = Translated(view, settings, contribute(view, settings))
            self._translated.add(translated)
            self._unsettled.add(view.host)
        return translated

    def _assign(self, translated: Translated | None) -> tuple[Built, ...]:
        view = translated.view if translated is not None else None
        if translated is None or view is None or view.service is None:
            return ()
        cached, service = self._assignments[view.host], view.service
        key = (service, view.rule, view.caller.kind, view.caller.whereabouts, translated.settings.locality)
        assigned = cached.get(key)
        if assigned is None:
            assigned = cached[key] = tuple(
                assignment
                for port in service.ports
                for assignment in endpoints.assignments(
                    service,
                    port,
                    view.rule,
                    self._mesh.endpoints(service, port),
                    view.caller.kind,
                    view.caller.whereabouts,
                    translated.settings.locality,
                )
            )
        return assigned
