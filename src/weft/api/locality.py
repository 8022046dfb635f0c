"""Reads Istio's `localityLbSetting`, of a DestinationRule's load balancer or of MeshConfig: which endpoints callers
prefer, by locality. Contradictory settings are rejected, as in Istio."""

from __future__ import annotations

from weft.api.document import Path
from weft.api.reader import Fields
from weft.model.destination_rule import Distribution, LocalitySetting
from weft.model.locality import TOPOLOGY, matches, parts_of

# Not supported as a failover label: endpoints grouped by node would be as many groups as nodes.
_BY_NODE = "kubernetes.io/hostname"


def read_locality(holder: Fields) -> LocalitySetting | None:
    fields = holder.fields("localityLbSetting")
    if fields is None:
        return None
    fields.one_of("distribute", "failover")
    fields.one_of("distribute", "failoverPriority")
    enabled = fields.boolean("enabled")
    priority = fields.texts("failoverPriority", most=317)
    for index, entry in enumerate(priority):
        name = entry.partition("=")[0]
        if name == _BY_NODE:
            what = "priority by node is not supported: the node of a caller is not known"
            fields.error(("failoverPriority", index), what, f"use {TOPOLOGY[1]}, or a label of the workloads")
        elif name in TOPOLOGY and fields.has("failover"):
            what = f"`failover` already sets priorities by locality, and `{name}` sets them again"
            fields.error(
                ("failoverPriority", index), what, f"remove `{name}` from `failoverPriority`, or leave out `failover`"
            )
    return LocalitySetting(
        enabled=enabled is None or enabled,
        distribute=_distribute(fields),
        failover=_failover(fields),
        failover_priority=priority,
    )


def _distribute(fields: Fields) -> tuple[Distribution, ...]:
    distributions: list[Distribution] = []
    for item in fields.items("distribute"):
        origin = item.text("from", required=True, most=253)
        _check_place(item, "from", origin)
        if any(_overlap(origin, other.origin) for other in distributions):
            item.error("from", f"`{origin}` is in another entry too")
        distributions.append(Distribution(origin, _shares(item)))
    return tuple(distributions)


def _shares(item: Fields) -> tuple[tuple[str, int], ...]:
    shares = item.integer_map("to", least=1, most=100)
    for index, place in enumerate(shares):
        _check_place(item, ("to", place), place)
        if any(_overlap(place, other) for other in list(shares)[:index]):
            item.error(("to", place), f"`{place}` is in another entry too")
    total = sum(shares.values())
    if total != 100:
        item.lacks("to", at="to", what=f"the shares add up to {total} %, and must add up to 100 %")
    return tuple(shares.items())


def _failover(fields: Fields) -> tuple[tuple[str, str], ...]:
    regions: list[tuple[str, str]] = []
    for item in fields.items("failover"):
        origin, to = item.text("from", required=True, most=63), item.text("to", required=True, most=63)
        for name, region in (("from", origin), ("to", to)):
            if "*" in region or "/" in region:
                item.error(name, f"`{region}` is not a region", "use the first part of a locality, without the zone")
        if origin and origin == to:
            item.error("to", "calls would fail over to the same region")
        if any(origin == other for other, _ in regions):
            item.error("from", f"`{origin}` is in another entry too")
        regions.append((origin, to))
    return tuple(regions)


def _check_place(fields: Fields, at: str | Path, place: str) -> None:
    parts = place.split("/")
    starred = [part for part in parts if "*" in part]
    if len(parts) > 3 or not all(parts) or (starred and (starred != ["*"] or parts[-1] != "*")):
        fields.error(
            at,
            f"`{place[:80]}` is not a locality",
            "write region, region/zone or region/zone/subzone; the last part may be `*`",
        )


def _overlap(one: str, other: str) -> bool:
    """Whether there is a locality that both patterns (`one` and `other`) match."""
    if "*" in parts_of(one) or "" in parts_of(one):
        return matches(other, one) or matches(one, other)
    return matches(one, other) or one == other
