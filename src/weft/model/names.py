"""Names: keys of objects and where they were defined, labels and selectors, hosts and wildcard patterns."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from weft.base.problem import Where

# Namespaces that a cluster itself needs to start; a webhook that is down must not block their pods.
CLUSTER_NAMESPACES = ("kube-system", "kube-public", "kube-node-lease", "local-path-storage")

Labels = tuple[tuple[str, str], ...]  # sorted pairs: hashable, comparable, and cheap to keep


class ObjectKey(msgspec.Struct, frozen=True, order=True):
    """Identifies an object, whether from a file or from Kubernetes. If two API groups have the same kind, the kind
    of the second group is written as KIND.GROUP (`api/kinds.py`)."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"


class CredentialRef(msgspec.Struct, frozen=True, order=True):
    """A reference to a Secret, by its name and namespace."""

    name: str
    namespace: str = ""  # "": the proxy's namespace


class Origin(msgspec.Struct, frozen=True):
    """Where a value comes from: the object that it was parsed from (`key`), the version of that object's content, and,
    for an object in a file, the file and the line; "" and 0 if unknown."""

    key: ObjectKey
    version: str = ""
    file: str = ""
    line: int = 0


def where_of(origin: Origin | None, named: str = "", *, line: int = 0, field: str = "") -> Where:
    """The place where a value was defined, for messages. `named`: the name to show instead of the object's, if the
    value is only a part of the object or has no origin. `line`: the line of that part; 0 for the line of the object.
    `field`: the path of the field."""
    if origin is None:
        return Where(object=named, field=field)
    return Where(origin.file, line or origin.line, named or str(origin.key), field)


def labels_of(mapping: Mapping[str, str]) -> Labels:
    return tuple(sorted(mapping.items()))


def selects(selector: Labels, labels: Labels) -> bool:
    """Whether every pair of the selector is among the labels; an empty selector selects everything."""
    return set(selector) <= set(labels)


def host_covers(pattern: str, host: str) -> bool:
    """Whether a host or wildcard pattern (`*`, `*.shop.svc.cluster.local`) covers a host or a narrower pattern."""
    if pattern == "*" or pattern == host:
        return True
    return pattern.startswith("*") and host.removeprefix("*").endswith(pattern[1:])


def full_host(name: str, namespace: str, domain: str) -> str:
    """The full name of the host `name` in an object of this namespace: a name without a dot is a service of the
    object's own namespace. `domain`: the DNS domain of services."""
    if "." in name or name == "*" or not name:
        return name
    return f"{name}.{namespace}.svc.{domain}"


def service_host(name: str, namespace: str, domain: str) -> str:
    return f"{name}.{namespace}.svc.{domain}"
