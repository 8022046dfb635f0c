"""Reads the Gateway API's ReferenceGrant: which objects of other namespaces may refer to which objects of the grant's
own namespace."""

from __future__ import annotations

from weft.api.metadata import Meta
from weft.api.reader import Fields
from weft.base.suggest import did_you_mean
from weft.model.gateway_api import GROUP, LISTENER_SET, GrantSource, GrantTarget, ReferenceGrant, RouteKind

_ASKING = ("Gateway", LISTENER_SET, *RouteKind)
_OTHERS = ("UDPRoute",)  # kinds of the Gateway API that weft does not support, but other controllers do
_ASKED_FOR = ("Service", "Secret", "ConfigMap")


def read_reference_grant(root: Fields, meta: Meta) -> tuple[ReferenceGrant, ...]:
    spec = root.fields("spec", required=True)
    if spec is None:
        return ()
    sources = tuple(_source(item) for item in spec.items("from", required=True))
    targets = tuple(_target(item) for item in spec.items("to", required=True))
    return (ReferenceGrant(meta.name, meta.namespace, sources, targets, meta.origin),)


def _source(item: Fields) -> GrantSource:
    """Read an entry of `from`. ReferenceGrants are also used by other controllers, so an entry that weft does not
    use gets a warning only if no controller can use it."""
    group, kind = item.text("group", most=253), item.text("kind", required=True, most=63)
    if group == GROUP and kind and kind not in (*_ASKING, *_OTHERS):
        item.warning(
            "kind",
            f"there is no kind `{kind}` that needs a grant: this entry has no effect",
            did_you_mean(kind, _ASKING),
        )
    elif not group and kind in _ASKING:
        what = f"a {kind} is not in the core group: this entry has no effect"
        item.warning("kind", what, f"write group: {GROUP}")
    return GrantSource(group, kind, item.text("namespace", required=True, most=63))


def _target(item: Fields) -> GrantTarget:
    group, kind = item.text("group", most=253), item.text("kind", required=True, most=63)
    meant = next((each for each in _ASKED_FOR if kind.lower().rstrip("s") == each.lower()), kind)
    if not group and kind != meant:
        item.warning("kind", f"there is no kind `{kind}`: this entry has no effect", f"did you mean `{meant}`?")
    elif not item.has("group"):
        item.warning("kind", "without `group` a cluster rejects the ReferenceGrant", 'write group: ""')
    return GrantTarget(group, kind, item.text("name", most=253))
