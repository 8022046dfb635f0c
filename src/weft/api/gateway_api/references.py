"""Reads references between objects of the Gateway API: the parents and the backends of a route. Defaults are those of
the Gateway API: a parent is a Gateway, a backend is a Service, both in the route's own namespace."""

from __future__ import annotations

from weft.api.metadata import Meta
from weft.api.reader import Fields
from weft.api.syntax import is_dns_label, is_host, is_hostname
from weft.model.gateway_api import GROUP, ISTIO_GROUP, LISTENER_SET, Backend, ParentRef
from weft.model.names import service_host
from weft.model.virtual_service import Headers

MOST_WEIGHT = 1_000_000  # the limit of the Gateway API


def read_parents(spec: Fields, meta: Meta) -> tuple[ParentRef, ...]:
    references = (_parent(item, meta, index) for index, item in enumerate(spec.items("parentRefs")))
    found = tuple(parent for parent in references if parent is not None)
    spec.refused("useDefaultGateways", "weft does not support default Gateways", "name a Gateway in `parentRefs`")
    if not spec.raw("parentRefs"):
        what, hint = "the route has no parent, and no effect", "name a Gateway or a Service in `parentRefs`"
        spec.warning("parentRefs", what, hint)
    return found


def _parent(item: Fields, meta: Meta, index: int) -> ParentRef | None:
    group, kind = item.text("group", default=GROUP, most=253), item.text("kind", default="Gateway", most=63)
    written = group if item.has("group") else None
    named = item.has("namespace")
    name = item.text("name", required=True, most=253)
    namespace = _namespace(item, meta)
    section, port = item.text("sectionName", most=253), item.port("port")
    if (group, kind) in ((GROUP, "Gateway"), (GROUP, LISTENER_SET)):
        return ParentRef(kind, namespace, name, section, port, group=written, index=index, namespaced=named)
    if kind == "Service" and group in ("", GROUP):  # the group is often omitted; no other group has a Service
        if group:
            what = (
                f'without `group: ""` the parent is a Service of {GROUP}, which does not exist: on a cluster, the '
                "route is not attached to the Service"
            )
            item.warning("kind", what, 'write group: ""')
        if section:
            item.error("sectionName", "a Service has no sections", "name a `port` of the Service")
        host = service_host(name, namespace, meta.domain)
        return ParentRef(kind, namespace, name, "", port, host, written, index, named)
    if (group, kind) == (ISTIO_GROUP, "ServiceEntry"):
        if section:
            item.error("sectionName", "a ServiceEntry has no sections", "name a `port` of the ServiceEntry")
        return ParentRef(kind, namespace, name, "", port, "", written, index, named)
    what = f"weft does not support a {kind} of {group or 'the core group'} as a parent"
    hint = (
        f'a Gateway or ListenerSet ({GROUP}), a Service (group: "") or a ServiceEntry ({ISTIO_GROUP}) can be a parent'
    )
    item.warning("kind", what, hint)
    return None


def read_backend(item: Fields, meta: Meta, headers: Headers = Headers(), *, weighted: bool = True) -> Backend:  # noqa: B008 - frozen
    group, kind = item.text("group", most=253), item.text("kind", default="Service", most=63)
    name = item.checked("name", is_host, "a name for an object", required=True, most=253)
    namespace = _namespace(item, meta)
    is_host_name = (group, kind) == (ISTIO_GROUP, "Hostname")
    if ((group, kind) == ("", "Service") or is_host_name) and not item.has("port"):
        item.lacks("port", what=f"a backend that is a {kind} needs a `port`")
    weight = item.integer("weight", most=MOST_WEIGHT) if weighted else None
    return Backend(
        namespace=namespace,
        name=name,
        host=name if is_host_name else service_host(name, namespace, meta.domain),
        port=item.port("port"),
        weight=1 if weight is None else weight,
        group=group,
        kind=kind,
        headers=headers,
        line=item.line,
    )


def read_hostnames(spec: Fields) -> tuple[str, ...]:
    hint = "write a name, or `*.example.com`"
    names = spec.checked_texts("hostnames", is_hostname, "a host name", hint, most=253)
    return tuple(name.lower() for name in names)


def _namespace(item: Fields, meta: Meta) -> str:
    return item.checked("namespace", is_dns_label, "a namespace", default=meta.namespace, most=63)
