"""Clusters of a dump as table rows: the service, port and subset of each, and the DestinationRule that applies to
it."""

from __future__ import annotations

from typing import Any

import msgspec

from weft.envoy.dump import CLUSTERS, WHY, Dump, DumpTable, Told, digits, managed_by, text

COLUMNS = ("SERVICE FQDN", "PORT", "SUBSET", "DIRECTION", "TYPE", "DESTINATION RULE")


class ClusterName(msgspec.Struct, frozen=True):
    """The parts of a cluster's name, such as `outbound|80|v1|HOST`: direction, port, subset and host. If a name does
    not have this form, all of it is the host."""

    direction: str
    port: int
    subset: str
    host: str

    @property
    def order(self) -> tuple[str, str, int, str]:
        return (self.host, self.subset, self.port, self.direction)


class ClusterFilter(msgspec.Struct, frozen=True):
    """Selects clusters by the parts of their name: `fqdn`, `subset` and `direction` are substrings of the host, the
    subset and the direction. An empty field or 0 selects all."""

    fqdn: str = ""  # a substring of the host
    port: int = 0
    subset: str = ""  # a substring of the subset
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
    """Return the clusters that `wanted` selects, as complete messages, in the order of the table."""
    wanted = wanted or ClusterFilter()
    messages = dump.messages(CLUSTERS, ("dynamic_active_clusters", "cluster"), ("static_clusters", "cluster"))
    named = [(parse_name(text(cluster, "name")), cluster) for cluster in messages]
    chosen = [(name, cluster) for name, cluster in named if wanted.takes(name)]
    return [cluster for _, cluster in sorted(chosen, key=lambda pair: pair[0].order)]


def table(clusters: list[dict[str, Any]], *, named: bool = False, why: Told | None = None) -> DumpTable:
    """Return the table of the clusters. `named`: the first column is the cluster's full name. `why`: returns the object
    that created a cluster, which becomes the last column; None: no such column."""
    rows = tuple(
        (
            *((f"cluster/{text(each, 'name')}",) if named else ()),
            *_row(each),
            *((why(text(each, "name"), ""),) if why else ()),
        )
        for each in clusters
    )
    return DumpTable((*(("NAME",) if named else ()), *COLUMNS, *(WHY if why else ())), rows)


def _row(cluster: dict[str, Any]) -> tuple[str, ...]:
    full_name = text(cluster, "name")
    name = parse_name(full_name)
    # JSON omits the first value of an enum (STATIC), and the type of a cluster that is an extension.
    ending = (text(cluster, "type") or "STATIC", managed_by(cluster))
    if "|" not in full_name:
        return (full_name, "-", "-", "-", *ending)
    return (name.host, str(name.port), name.subset or "-", name.direction, *ending)
