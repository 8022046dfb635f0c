"""The Gateway API's ReferenceGrant: which objects of other namespaces may refer to what in this one."""

from __future__ import annotations

from weft.api.metadata import Meta
from weft.api.reader import Fields
from weft.base.suggest import did_you_mean
from weft.model.gateway_api import GROUP, GrantSource, GrantTarget, ReferenceGrant, RouteKind

_ASKING = ("Gateway", *RouteKind)
_OTHERS = ("UDPRoute", "ListenerSet")  # of the standard, which weft does not read and others may
_ASKED_FOR = ("Service", "Secret", "ConfigMap")


def read_reference_grant(root: Fields, meta: Meta) -> tuple[ReferenceGrant, ...]:
    spec = root.fields("spec", required=True)
    if spec is None:
        return ()
    sources = tuple(_source(item) for item in spec.items("from", required=True))
    targets = tuple(_target(item) for item in spec.items("to", required=True))
    return (ReferenceGrant(meta.name, meta.namespace, sources, targets, meta.origin),)


def _source(item: Fields) -> GrantSource:
    """Grants are written for other controllers, too; what is meant for nobody else is said."""
    group, kind = item.text("group", most=253), item.text("kind", required=True, most=63)
    if group == GROUP and kind and kind not in (*_ASKING, *_OTHERS):
        item.warning(
            "kind", f"no object of kind `{kind}` asks for it: this grants nothing", did_you_mean(kind, _ASKING)
        )
    elif not group and kind in _ASKING:
        what = f"a {kind} is of another group than the core one: this grants nothing"
        item.warning("kind", what, f"write group: {GROUP}")
    return GrantSource(group, kind, item.text("namespace", required=True, most=63))


def _target(item: Fields) -> GrantTarget:
    group, kind = item.text("group", most=253), item.text("kind", required=True, most=63)
    meant = next((each for each in _ASKED_FOR if kind.lower().rstrip("s") == each.lower()), kind)
    if not group and kind != meant:
        item.warning("kind", f"there is no kind `{kind}`: this grants nothing", f"did you mean `{meant}`?")
    elif not item.has("group"):
        item.warning("kind", "without `group` a cluster refuses it", 'write group: ""')
    return GrantTarget(group, kind, item.text("name", most=253))
