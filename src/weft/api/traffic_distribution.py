"""Reads which endpoints callers of a service prefer: `trafficDistribution` of a Service, or the annotation
`networking.istio.io/traffic-distribution` of a Service or ServiceEntry. The field takes precedence, as in Istio."""

from __future__ import annotations

from weft.api.document import Path
from weft.api.metadata import Meta
from weft.api.reader import Fields
from weft.base.suggest import did_you_mean
from weft.model.destination_rule import LocalitySetting
from weft.model.locality import REGION_LABEL, ZONE_LABEL

ANNOTATION = "networking.istio.io/traffic-distribution"
_SAME_NODE = "PreferSameNode"
VALUES = ("PreferSameZone", "PreferClose", _SAME_NODE)
_SAME_ZONE = LocalitySetting(failover_priority=(REGION_LABEL, ZONE_LABEL), always=True)


def read_traffic_distribution(root: Fields, meta: Meta, spec: Fields | None = None) -> LocalitySetting | None:
    """Return the setting that makes callers prefer endpoints in their own zone; None if the object sets no traffic
    distribution, so that all endpoints are preferred alike. `root`: the fields of the whole object. `spec`: the fields
    that may contain `trafficDistribution`; None for kinds without this field, for which only the annotation is read."""
    written = spec.choice("trafficDistribution", VALUES) if spec is not None else ""
    at: Path = ("spec", "trafficDistribution")
    if not written:
        at, annotated = ("metadata", "annotations", ANNOTATION), dict(meta.annotations).get(ANNOTATION, "")
        written = next((value for value in VALUES if value.lower() == annotated.lower()), "")
        if annotated and not written:
            what = f"`{annotated[:80]}` is not a traffic distribution, so all endpoints are preferred alike"
            root.warning(at, what, did_you_mean(annotated[:80], VALUES))
    if written == _SAME_NODE:
        what = "weft does not know on which node a caller runs: endpoints in its zone are preferred"
        root.warning(at, what, "write PreferSameZone")
    return _SAME_ZONE if written else None
