"""One part of a resource with the objects and rules behind it (`Part`), and the views of the mesh from which these
are found (`Ground`). Translation reads the same views."""

from __future__ import annotations

from functools import cached_property

import msgspec

from weft.explain.decision import ObjectSource
from weft.inspect.reasons import rules
from weft.inspect.reasons.rules import DecisionRule
from weft.mesh.mesh import Mesh
from weft.model.group import Group
from weft.model.names import ObjectKey, Origin, where_of
from weft.model.on_demand import OnDemand
from weft.model.sidecar import OutboundPolicy, Sidecar
from weft.translate.view import GroupView, ServiceView, group_view, service_view


class Part(msgspec.Struct, frozen=True):
    """One part of a resource, the objects that it comes from, and the decision rules that apply to it. `path` and `at`
    both name the part: `path` by the names of list entries, `at` by their positions, such as `filter_chains[3]`."""

    path: str
    at: str
    sources: tuple[ObjectSource, ...] = ()  # the deciding object first
    rules: tuple[DecisionRule, ...] = ()


class Ground:
    """The views of the mesh that belong to one group of proxies. The group's config is translated from these views,
    and its reasons are found in them."""

    def __init__(self, mesh: Mesh, group: Group) -> None:
        self.mesh, self.group = mesh, group
        self._views: dict[str, ServiceView | None] = {}

    @cached_property
    def view(self) -> GroupView:
        return group_view(self.mesh, self.group)

    @cached_property
    def sidecar(self) -> Sidecar | None:
        return self.mesh.sidecar(self.group)

    def service(self, host: str) -> ServiceView | None:
        if host not in self._views:
            self._views[host] = service_view(self.mesh, self.group, self.mesh.scope(self.group), host)
        return self._views[host]

    def outbound(self) -> tuple[tuple[ObjectSource, ...], tuple[DecisionRule, ...]]:
        """The object that decides what happens to calls to hosts unknown to the mesh, and the rules by which it
        decides. The first tuple is empty if the default applies."""
        if self.sidecar is not None and self.sidecar.outbound_policy is not None:
            return sources(self.sidecar.origin), (rules.OUTBOUND_BY_SIDECAR, rules.NEAREST_SIDECAR)
        settings = self.mesh.settings
        if settings.outbound_policy is OutboundPolicy.ALLOW_ANY:
            return (), (rules.OUTBOUND_ALLOW_ANY,)
        return sources(settings.origin), (rules.OUTBOUND_BY_MESH,)

    def on_demand(self) -> tuple[tuple[ObjectSource, ...], tuple[DecisionRule, ...]]:
        """The object and the rule by which on-demand CDS is on for the group: its proxies hold calls to services for
        which they have no config yet. The first tuple is empty if no object sets on-demand CDS, so that the number of
        services decides."""
        judged = self.mesh.on_demand(self.mesh.scope(self.group))
        stays = (
            ""
            if judged.on
            else "; the proxies stay on demand until they have disconnected, so that held calls can proceed"
        )
        rule = msgspec.structs.replace(rules.HELD_CALLS, says=f"{rules.HELD_CALLS.says} {judged}{stays}.")
        by_mesh = judged.setting is not OnDemand.AUTO
        return sources(self.mesh.settings.origin) if by_mesh else (), (rule,)

    def scope(self) -> tuple[tuple[ObjectSource, ...], tuple[DecisionRule, ...]]:
        """The Sidecar that limits the services that the group sees, and the rule by which it does; two empty tuples
        if no Sidecar limits them."""
        if self.sidecar is None or not self.sidecar.egress:
            return (), ()
        return sources(self.sidecar.origin), (rules.SIDECAR_SCOPE,)


def sources(*origins: Origin | None, line: int = 0, part: str = "") -> tuple[ObjectSource, ...]:
    """Convert origins to sources, one per object. `line` and `part`, the line and field within the object, are set
    only in the first source."""
    listed: list[ObjectSource] = []
    for position, origin in enumerate(dict.fromkeys(each for each in origins if each is not None)):
        source = _of(origin)
        if position == 0 and (line or part):
            source = msgspec.structs.replace(source, line=line or source.line, part=part)
        listed.append(source)
    return tuple(listed)


def placed(mesh: Mesh, source: ObjectSource) -> ObjectSource:
    """Return the source with the file, line and version of its object. Clusters and listeners do not contain them,
    so that moving an object within its file does not change any config."""
    if source.file:
        return source
    origin = origin_of(mesh, source)
    if origin is None:
        return source
    line = rule_line(mesh, source) or origin.line
    where = where_of(origin, line=line)
    return msgspec.structs.replace(
        source,
        file=where.file,
        line=where.line if where.file else 0,
        version=mesh.revisions.get(origin.key) or source.version or origin.version,
    )


def origin_of(mesh: Mesh, source: ObjectSource) -> Origin | None:
    values = mesh.get(ObjectKey(source.kind, source.namespace, source.name))
    return next((value.origin for value in values if value.origin is not None), None)


def rule_line(mesh: Mesh, source: ObjectSource) -> int:
    """The line of the policy rule that `source.part` names, such as `rule[2]`; 0 if unknown."""
    number = source.part.removeprefix("rule[").removesuffix("]")
    if source.kind != "AuthorizationPolicy" or not number.isdecimal():
        return 0
    for value in mesh.get(ObjectKey(source.kind, source.namespace, source.name)):
        written = getattr(value, "rules", ())
        if int(number) < len(written):
            line: int = getattr(written[int(number)], "line", 0)
            return line
    return 0


def _of(origin: Origin) -> ObjectSource:
    key = origin.key
    return ObjectSource(key.kind, key.namespace, key.name, origin.file, origin.line, version=origin.version)
