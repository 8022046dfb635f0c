"""The Gateway API's ReferenceGrant: which objects of other namespaces may refer to what in this one."""

from __future__ import annotations

from weft.api.metadata import Meta
from weft.api.reader import Fields
from weft.model.gateway_api import GrantSource, GrantTarget, ReferenceGrant


def read_reference_grant(root: Fields, meta: Meta) -> tuple[ReferenceGrant, ...]:
    spec = root.fields("spec", required=True)
    if spec is None:
        return ()
    sources = tuple(
        GrantSource(
            item.text("group", most=253),
            item.text("kind", required=True, most=63),
            item.text("namespace", required=True, most=63),
        )
        for item in spec.items("from", required=True)
    )
    targets = tuple(
        GrantTarget(
            item.text("group", most=253), item.text("kind", required=True, most=63), item.text("name", most=253)
        )
        for item in spec.items("to", required=True)
    )
    return (ReferenceGrant(meta.name, meta.namespace, sources, targets, meta.origin),)
