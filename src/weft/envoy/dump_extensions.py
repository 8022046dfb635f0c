"""HTTP and network filters that a proxy was sent by ECDS, as table rows. weft sends no filters by ECDS, so the table of
a proxy of weft is empty."""

from __future__ import annotations

from typing import Any

from weft.envoy.dump import EXTENSIONS, Dump, DumpTable, at, items, text

COLUMNS = ("ECDS NAME", "TYPE")
_PREFIX = "type.googleapis.com/"


def extensions(dump: Dump) -> dict[str, Any]:
    """Return the ECDS section of the dump without its type. Return {} if the section is missing: an Envoy that was
    never sent a filter by ECDS may omit it."""
    sections = dump.sections(EXTENSIONS)
    return {name: value for name, value in sections[-1].items() if name != "@type"} if sections else {}


def table(section: dict[str, Any]) -> DumpTable:
    rows = [
        (text(each, "typed_config", "@type").removeprefix(_PREFIX), text(each, "name"))
        for each in (at(entry, "ecds_filter") for entry in items(section, "ecds_filters"))
    ]
    return DumpTable(COLUMNS, tuple((name, kind) for kind, name in sorted(rows)))
