"""Reads the metadata of an object: name, namespace, labels, annotations and origin. Also reads fields that many kinds
share: `exportTo`, selectors, references to hosts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import msgspec

from weft.api.document import Document
from weft.api.reader import Fields
from weft.api.syntax import is_address, is_dns_label, is_host, is_wildcard_host
from weft.base.problem import Severity
from weft.model.names import Labels, Origin, full_host, labels_of


class Meta(msgspec.Struct, frozen=True):
    name: str
    namespace: str
    domain: str
    labels: Labels
    annotations: Labels
    created: str
    origin: Origin

    def host(self, name: str) -> str:
        """Return the fully qualified name of a host that this object names; an IP address is returned unchanged."""
        return name if is_address(name) else full_host(name, self.namespace, self.domain)


def read_metadata(root: Fields, document: Document, domain: str) -> Meta:
    root.ignored("apiVersion", "kind", "status")
    fields = root.fields("metadata", required=True)
    labels: Labels = ()
    annotations: Mapping[str, str] = {}
    created = ""
    if fields is not None:
        fields.ignored(
            "uid",
            "resourceVersion",
            "generation",
            "managedFields",
            "ownerReferences",
            "finalizers",
            "selfLink",
            "generateName",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
        )
        labels, annotations = fields.labels("labels"), fields.string_map("annotations")
        created = fields.text("creationTimestamp", most=64)
        _check_names(fields, document)
    key = document.key
    origin = Origin(key=key, version=content_version(document.body), file=document.file, line=document.line)
    return Meta(key.name, key.namespace, domain, labels, labels_of(annotations), created, origin)


def content_version(body: Mapping[str, Any]) -> str:
    """Return a hash of `body`, an object's content, without its status. It does not depend on the object's file or
    line."""
    content = {name: value for name, value in body.items() if name != "status"}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def export_to(fields: Fields, meta: Meta, *, no_namespace: bool = False) -> tuple[str, ...]:
    """Read `exportTo`: `.`, `*` or namespaces; with `no_namespace` also `~`, which exports to no namespace."""
    entries = fields.texts("exportTo", most=63)
    seen = set()
    for index, entry in enumerate(entries):
        namespace = meta.namespace if entry == "." else entry
        if namespace in seen:
            fields.error(("exportTo", index), f"`{entry}` is listed twice in `exportTo`")
        seen.add(namespace)
        if entry not in (".", "*") and not (no_namespace and entry == "~") and not is_dns_label(entry):
            fields.error(
                ("exportTo", index), f"`{entry}` is not a namespace", "use a namespace, `.` (this one) or `*` (all)"
            )
    if len(entries) > 1 and seen & {"*", "~"}:
        fields.error("exportTo", "`*` and `~` cannot be combined with other entries in `exportTo`")
    return entries


def selector(fields: Fields, name: str, labels_name: str = "labels") -> Labels | None:
    """Read the labels of the workload selector in the field `name`; None if the field is not set. `labels_name`: the
    field of the selector that contains the labels."""
    inner = fields.fields(name)
    if inner is None:
        return None
    labels = inner.labels(labels_name)
    if inner.outdented(labels_name, inner.texts_beside(labels_name)):
        return labels
    if not labels:
        what = f"`{name}` without labels selects every workload of the namespace"
        inner.lacks(labels_name, what=what, severity=Severity.WARNING)
    return labels


def host_reference(fields: Fields, name: str, meta: Meta, *, star: bool = False) -> str:
    """Read the host in the field `name` and return its fully qualified name. The host may be a short name, a wildcard
    or an IP address; `star`: it may be `*`."""
    written = fields.raw(name)
    if not isinstance(written, str) or not (is_wildcard_host(written) or is_address(written)):
        return meta.host(fields.host(name, required=True))
    if written == "*" and not star:
        fields.error(name, f"`{name}` cannot be `*`", "name one service")
    return meta.host(written.removesuffix("."))


def gateway_names(fields: Fields, meta: Meta) -> tuple[str, ...]:
    """Read `gateways`: each becomes NAMESPACE/NAME, or `mesh`."""
    names = []
    for index, name in enumerate(fields.texts("gateways", most=255)):
        namespace, slash, short = name.partition("/")
        if name == "mesh" or (slash and is_dns_label(namespace) and is_host(short)):
            names.append(name)
        elif not slash and is_dns_label(name):
            names.append(f"{meta.namespace}/{name}")
        elif not slash and "." in name.removesuffix(".") and is_host(name):
            short, namespace = name.split(".")[:2]
            names.append(f"{namespace}/{short}")
            fields.warning(
                ("gateways", index), f"`{name}` is a deprecated way to name a gateway", f"write {namespace}/{short}"
            )
        else:
            fields.error(
                ("gateways", index), f"`{name}` is not a reference to a gateway", "write NAMESPACE/NAME, NAME or mesh"
            )
    return tuple(names)


def _check_names(fields: Fields, document: Document) -> None:
    name = fields.text("name", required=True, most=253)
    if not is_host(name) or name != name.lower():
        fields.error(
            "name", f"`{document.key.name[:80]}` is not a name for an object", "use lower-case letters, digits, - and ."
        )
    namespace = fields.text("namespace", most=253)
    if namespace and not is_dns_label(namespace):
        fields.error("namespace", f"`{namespace[:80]}` is not a namespace", "use lower-case letters, digits and -")
