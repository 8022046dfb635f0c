"""Locality load balancing: the order in which a caller uses the endpoints' localities, and their weights.

The input is endpoints, the caller's locality and the localityLbSetting, the output localities with priorities and
weights. Rule: without a setting, all localities are equal. A locality is REGION/ZONE/SUBZONE, as in Istio.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from math import ceil

import msgspec

from weft.model.destination_rule import DestinationRule, LocalitySetting, TrafficPolicy, levels
from weft.model.endpoint import Endpoint
from weft.model.names import Labels
from weft.model.service import Service

REGION_LABEL, ZONE_LABEL = "topology.kubernetes.io/region", "topology.kubernetes.io/zone"
SUBZONE_LABEL = "topology.istio.io/subzone"
LOCALITY_LABEL = "istio-locality"  # label of a workload, with dots instead of slashes
TOPOLOGY = (REGION_LABEL, ZONE_LABEL, SUBZONE_LABEL)

_FAR, _FARTHEST = 3, 4  # distances: another region; a region that `failover` does not name


class Whereabouts(msgspec.Struct, frozen=True):
    """The caller's locality, and those of its labels that decide which endpoints it prefers, for calls to one host."""

    locality: str = ""
    labels: Labels = ()  # labels that a failoverPriority names, without the topology labels


class LocalityGroup(msgspec.Struct, frozen=True):
    """Endpoints of one locality with the same priority. `weight`: the locality's weight. `priority`: 0 is used
    first."""

    locality: str
    endpoints: tuple[Endpoint, ...]
    weight: int
    priority: int = 0  # 0 is used first


def without_rule(service: Service | None, mesh: LocalitySetting) -> LocalitySetting:
    """The locality setting where no DestinationRule has one: the service's trafficDistribution, else `mesh`, the
    setting of the whole mesh."""
    return service.distribution or mesh if service is not None else mesh


def setting_for(policy: TrafficPolicy, default: LocalitySetting) -> LocalitySetting | None:
    """The locality setting for a port of a host: that of the DestinationRule, else `default` (see `without_rule`). None
    if neither applies, so that all localities are equal. As in Istio, failover by a DestinationRule or by the mesh
    needs outlier detection, because unhealthy endpoints would not be noticed without it."""
    written = policy.load_balancer.locality if policy.load_balancer is not None else None
    setting = written or default
    if not setting.enabled or not (setting.distribute or setting.always or policy.outlier_detection is not None):
        return None
    return setting


def weighs_places(policy: TrafficPolicy, mesh: LocalitySetting) -> bool:
    """Whether the proxy first chooses a locality by weight, then an endpoint in it (locality-weighted load balancing).
    `policy`: the traffic policy of a port of a host. `mesh`: the setting that applies if the policy has none (see
    `without_rule`)."""
    setting = setting_for(policy, mesh)
    return setting is not None and bool(setting.distribute or setting.failover or setting.failover_priority)


def whereabouts(
    rule: DestinationRule | None, mesh: LocalitySetting, locality: str, labels: Labels
) -> Whereabouts | None:
    """The caller's locality, and those of its labels that `failoverPriority` compares, for calls to the host of the
    rule; None if such calls do not depend on the caller's locality. `mesh`: the setting that applies if the rule has
    none (see `without_rule`). `locality` and `labels`: the caller's."""
    if not asks_where(rule) and not (mesh.enabled and (mesh.distribute or mesh.always)):
        return None
    named = _named_labels(rule, mesh)
    return Whereabouts(locality, tuple(each for each in labels if each[0] in named))


def asks_where(rule: DestinationRule | None) -> bool:
    """Whether a DestinationRule may enable locality load balancing, at any of its levels (host, subset, port)."""
    return any(
        level.outlier_detection is not None
        or (level.load_balancer is not None and level.load_balancer.locality is not None)
        for level in levels(rule)
    )


def fails_over(policy: TrafficPolicy, mesh: LocalitySetting, caller: Whereabouts | None) -> bool:
    """Whether the caller's calls to a port move to other localities when the endpoints of nearer ones are ejected.
    `policy`: the traffic policy of the port. `mesh`: the setting that applies if the policy has none (see
    `without_rule`). `caller`: None if the calls do not depend on the caller's locality."""
    known = caller is not None and bool(caller.locality or caller.labels)
    return known and setting_for(policy, mesh) is not None


def looks_at_labels(rule: DestinationRule | None, mesh: LocalitySetting) -> bool:
    """Whether callers in one locality may get different priorities for calls to the host of the rule, by their labels.
    `mesh`: the setting of the whole mesh."""
    return asks_where(rule) and bool(_named_labels(rule, mesh))


def places(
    endpoints: Sequence[Endpoint], caller: Whereabouts, setting: LocalitySetting | None
) -> tuple[LocalityGroup, ...]:
    """All usable endpoints, grouped by locality, with the priorities and weights that `setting` gives them for
    `caller`, in a stable order. `setting`: None if all localities are equal."""
    by_locality: dict[str, list[Endpoint]] = defaultdict(list)
    for endpoint in endpoints:
        by_locality[endpoint.locality].append(endpoint)
    groups = [_place(locality, members) for locality, members in sorted(by_locality.items())]
    if setting is None:
        return tuple(groups)
    if setting.distribute:
        return _distributed(groups, caller, setting)
    if setting.failover_priority:
        groups = [part for place in groups for part in _by_labels(place, caller, setting.failover_priority)]
        if setting.failover:
            groups = _by_distance(groups, caller, setting)
    else:
        groups = _by_distance(groups, caller, setting)
    return _without_gaps(groups)


def matches(locality: str, wanted: str) -> bool:
    """Whether a locality matches the pattern `wanted`, of the form `region/zone/subzone`, in which `*` or an empty
    part matches everything."""
    wanted_parts, parts = parts_of(wanted), parts_of(locality)
    return all(each in ("*", "") or each == part for each, part in zip(wanted_parts, parts, strict=True))


def parts_of(locality: str) -> tuple[str, str, str]:
    region, zone, subzone = (*locality.split("/", 2), "", "")[:3]
    return region, zone, subzone


def stated(labels: Mapping[str, str]) -> str:
    """The locality that a workload declares in its own labels; "" if it declares none."""
    if LOCALITY_LABEL in labels:
        return labels[LOCALITY_LABEL].replace(".", "/")
    return "/".join(labels.get(name, "") for name in TOPOLOGY).rstrip("/")


def _place(locality: str, members: Sequence[Endpoint], priority: int = 0) -> LocalityGroup:
    return LocalityGroup(locality, tuple(members), sum(max(member.weight, 1) for member in members), priority)


def _distributed(
    groups: list[LocalityGroup], caller: Whereabouts, setting: LocalitySetting
) -> tuple[LocalityGroup, ...]:
    """The localities of `groups`, weighted by `distribute` of the setting: the first entry that matches the caller's
    locality decides. If no entry matches, all localities are equal."""
    shares = next((each.to for each in setting.distribute if matches(caller.locality, each.origin)), None)
    if shares is None:
        return tuple(groups)
    weighed: dict[str, LocalityGroup] = {}
    for wanted, share in shares:
        inside = [place for place in groups if place.locality not in weighed and matches(place.locality, wanted)]
        total = sum(place.weight for place in inside)
        for place in inside:
            weighed[place.locality] = msgspec.structs.replace(place, weight=ceil(place.weight * share / total))
    return tuple(weighed[place.locality] for place in groups if place.locality in weighed)


def _by_labels(place: LocalityGroup, caller: Whereabouts, wanted: Sequence[str]) -> list[LocalityGroup]:
    """Split the endpoints of a locality (`place`) into groups by failoverPriority (`wanted`, label names in order of
    importance). Labels are compared from the first name on: the more successive labels an endpoint has in common with
    the caller, the higher the priority of its group."""
    own = {**dict(caller.labels), **_topology(caller.locality)}
    by_priority: dict[int, list[Endpoint]] = defaultdict(list)
    for endpoint in place.endpoints:
        theirs = {**dict(endpoint.labels), **_topology(endpoint.locality)}
        common = 0
        for entry in wanted:
            name, given, value = entry.partition("=")
            if theirs.get(name, "") != (value if given else own.get(name, "")):
                break
            common += 1
        by_priority[len(wanted) - common].append(endpoint)
    return [_place(place.locality, members, priority) for priority, members in sorted(by_priority.items())]


def _by_distance(groups: list[LocalityGroup], caller: Whereabouts, setting: LocalitySetting) -> list[LocalityGroup]:
    """The groups with priorities by distance to the caller. The region to which `failover` of the setting leads is
    nearer than all other regions but the caller's own. Distance only orders groups to which `failoverPriority` gives
    the same priority. If the caller has no locality, the priorities do not change."""
    if not caller.locality:
        return groups
    region = parts_of(caller.locality)[0]
    leads_to = next((to for origin, to in setting.failover if origin == region), "")
    result = []
    for place in groups:
        distance = _distance(caller.locality, place.locality)
        if distance == _FAR and leads_to and parts_of(place.locality)[0] != leads_to:
            distance = _FARTHEST
        result.append(msgspec.structs.replace(place, priority=place.priority * (_FARTHEST + 1) + distance))
    return result


def _distance(one: str, other: str) -> int:
    """The distance between two localities. 0: the same subzone; 1: the same zone; 2: the same region; 3: another
    region."""
    common = 0
    for mine, theirs in zip(parts_of(one), parts_of(other), strict=True):
        if mine != theirs:
            break
        common += 1
    return _FAR - common


def _without_gaps(groups: list[LocalityGroup]) -> tuple[LocalityGroup, ...]:
    """The groups with priorities renumbered from 0 without gaps, as Envoy requires."""
    rank = {priority: position for position, priority in enumerate(sorted({place.priority for place in groups}))}
    return tuple(msgspec.structs.replace(place, priority=rank[place.priority]) for place in groups)


def _named_labels(rule: DestinationRule | None, mesh: LocalitySetting) -> set[str]:
    """The names of the caller's labels that `failoverPriority` of the rule or of `mesh` compares with the labels of
    endpoints, without the topology labels. `mesh`: the setting that applies if the rule has none."""
    written = [level.load_balancer.locality for level in levels(rule) if level.load_balancer is not None]
    settings = (mesh, *(each for each in written if each is not None))
    named = (entry for setting in settings if not setting.distribute for entry in setting.failover_priority)
    return {entry for entry in named if "=" not in entry and entry not in TOPOLOGY}


def _topology(locality: str) -> dict[str, str]:
    return {name: part for name, part in zip(TOPOLOGY, parts_of(locality), strict=True) if part}
