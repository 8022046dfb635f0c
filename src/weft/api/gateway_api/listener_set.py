"""Reads the Gateway API's ListenerSet: more listeners for a Gateway, which the Gateway must allow."""

from __future__ import annotations

from weft.api.gateway_api.gateway import read_listeners
from weft.api.metadata import Meta
from weft.api.reader import Fields
from weft.api.syntax import is_dns_label, is_object_name
from weft.model.gateway_api import GROUP, ListenerSet


def read_listener_set(root: Fields, meta: Meta) -> tuple[ListenerSet, ...]:
    spec = root.fields("spec", required=True)
    parent = spec.fields("parentRef", required=True) if spec is not None else None
    if spec is None or parent is None:
        return ()
    group, kind = parent.text("group", default=GROUP, most=253), parent.text("kind", default="Gateway", most=63)
    if (group, kind) != (GROUP, "Gateway"):
        what = f"weft does not support a {kind} of {group or 'the core group'} as the parent of a ListenerSet"
        parent.error("kind", what, f"name a Gateway ({GROUP})")
    hint = "use lower-case letters, digits, - and ."
    return (
        ListenerSet(
            name=meta.name,
            namespace=meta.namespace,
            gateway_namespace=parent.checked("namespace", is_dns_label, "a namespace", default=meta.namespace, most=63),
            gateway_name=parent.checked("name", is_object_name, "the name of a Gateway", hint, required=True, most=253),
            listeners=read_listeners(spec, meta),
            created=meta.created,
            origin=meta.origin,
        ),
    )
