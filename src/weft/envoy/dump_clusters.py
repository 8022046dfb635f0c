"""Clusters of a dump as rows: which service, port and subset each is for, and which DestinationRule shaped it."""

from __future__ import annotations

from typing import Any

import msgspec

from weft.envoy.dump import CLUSTERS, WHY, Dump, DumpTable, Told, digits, managed_by, text

COLUMNS = ("SERVICE FQDN", "PORT", "SUBSET", "DIRECTION", "TYPE", "DESTINATION RULE")


class ClusterName(msgspec.Struct, frozen=True):
    """`outbound|80|v1|HOST`, taken apart. A name of another form is all host."""

    direction: str
    port: int
    subset: str
    host: str

    @property
    def order(self) -> tuple[str, str, int, str]:
        return (self.host, self.subset, self.port, self.direction)


class ClusterFilter(msgspec.Struct, frozen=True):
    """What is empty or 0 asks for nothing."""

    fqdn: str = ""  # a part of the host
    port: int = 0
    subset: str = ""  # a part of it
    direction: str = ""

    def takes(self, name: ClusterName) -> bool:
        return (
            self.fqdn in name.host
            and self.port in (0, name.port)
            and self.subset in name.subset
            and self.direction in name.direction
        )


def parse_name(name: str) -> ClusterName:
    parts = name.split("|")
    if len(parts) != 4:
        return ClusterName("", 0, "", name)
    direction, port, subset, host = parts
    return ClusterName(direction, digits(port), subset, host)


def clusters(dump: Dump, wanted: ClusterFilter | None = None) -> list[dict[str, Any]]:
    """Whole, in the order of the table."""
    wanted = wanted or ClusterFilter()
    found = dump.messages(CLUSTERS, ("dynamic_active_clusters", "cluster"), ("static_clusters", "cluster"))
    named = [(parse_name(text(cluster, "name")), cluster) for cluster in found]
    chosen = [(name, cluster) for name, cluster in named if wanted.takes(name)]
    return [cluster for _, cluster in sorted(chosen, key=lambda pair: pair[0].order)]


def table(found: list[dict[str, Any]], *, named: bool = False, why: Told | None = None) -> DumpTable:
    """`named`: with the whole name before the columns. `why`: with who made it behind them."""
    rows = tuple(
        (
            *((f"cluster/{text(each, 'name')}",) if named else ()),
            *_row(each),
            *((why(text(each, "name"), ""),) if why else ()),
        )
        for each in found
    )
    return DumpTable((*(("NAME",) if named else ()), *COLUMNS, *(WHY if why else ())), rows)


def _row(cluster: dict[str, Any]) -> tuple[str, ...]:
    written = text(cluster, "name")
    name = parse_name(written)
    # An enumeration's first value is not written, and neither is the type of a cluster with an extension's.
    ending = (text(cluster, "type") or "STATIC", managed_by(cluster))
    if "|" not in written:
        return (written, "-", "-", "-", *ending)
    return (name.host, str(name.port), name.subset or "-", name.direction, *ending)
