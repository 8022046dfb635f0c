"""Reads Istio's DestinationRule: the traffic policy for calls to a host, and its subsets."""

from __future__ import annotations

from weft.api.metadata import Meta, export_to, host_reference, selector
from weft.api.reader import Fields
from weft.api.syntax import is_dns_label
from weft.api.traffic_policy import read_policy
from weft.model.destination_rule import DestinationRule, Subset


def read_destination_rule(root: Fields, meta: Meta) -> tuple[DestinationRule, ...]:
    spec = root.fields("spec", required=True)
    if spec is None:
        return ()
    chosen = selector(spec, "workloadSelector", "matchLabels")
    exported = export_to(spec, meta)
    if chosen is not None and exported not in ((), (".",), (meta.namespace,)):
        spec.error("exportTo", "a rule with `workloadSelector` cannot be exported beyond its own namespace")
    return (
        DestinationRule(
            name=meta.name,
            namespace=meta.namespace,
            host=host_reference(spec, "host", meta, star=True),
            policy=read_policy(spec),
            subsets=_subsets(spec),
            workload_selector=chosen or (),
            export_to=exported,
            created=meta.created,
            origin=meta.origin,
        ),
    )


def _subsets(spec: Fields) -> tuple[Subset, ...]:
    subsets: list[Subset] = []
    for item in spec.items("subsets"):
        hint = "use lower-case letters, digits and -"
        name = item.checked("name", is_dns_label, "a subset name", hint, required=True, most=63)
        if name and any(other.name == name for other in subsets):
            item.error("name", f"two subsets are named `{name}`")
        subsets.append(Subset(name, item.labels("labels"), read_policy(item), item.line))
    return tuple(subsets)
