"""Names of pods, workloads and services: splits a typed name into kind, name and namespace, and formats lists of names
for shell completion."""

from __future__ import annotations

from collections.abc import Iterable

from weft.cli.print.output import fail

# kubectl's abbreviations. A mesh on this machine has only workloads and pods; there, every kind of workload means the
# same.
KINDS = {
    "po": "pod",
    "pod": "pod",
    "pods": "pod",
    "deploy": "deployment",
    "deployment": "deployment",
    "deployments": "deployment",
    "sts": "statefulset",
    "statefulset": "statefulset",
    "statefulsets": "statefulset",
    "ds": "daemonset",
    "daemonset": "daemonset",
    "daemonsets": "daemonset",
    "rs": "replicaset",
    "replicaset": "replicaset",
    "replicasets": "replicaset",
    "job": "job",
    "jobs": "job",
    "svc": "service",
    "service": "service",
    "services": "service",
}


def split(word: str, namespace: str, *, known: set[str] | None = None) -> tuple[str, str, str]:
    """Return kind, name and namespace of a typed `word`, such as deploy/NAME.NAMESPACE; kind and namespace may be
    empty. `namespace` is that of the flag -n. `known` holds the existing namespaces: the part after the last dot
    is a namespace only if it is one of them, because names may contain dots. Without `known`, that part is always
    a namespace."""
    before, slash, name = word.rpartition("/")
    kind = KINDS.get(before.lower(), "") if slash else ""
    if slash and not kind:
        if known is None or before not in known:
            kinds = "deploy, sts, ds, rs, job, svc, pod"
            fail(f"`{word}`: there is no kind `{before}`", f"use one of {kinds}; for example: deploy/{name}", code=2)
        return "", name, before
    first, dot, last = name.rpartition(".")
    if dot and (known is None or last in known):
        if namespace and namespace != last:
            fail(
                f"two namespaces are named: {last} and {namespace}",
                f"give only one: {first}.{last}, or -n {namespace}",
                code=2,
            )
        return kind, first, last
    return kind, name, namespace


def within(namespace: str, names: Iterable[tuple[str, str]]) -> list[str]:
    """Format `names`, pairs of (name, namespace), as NAME.NAMESPACE. If `namespace` is given, return only the names
    in that namespace, without the suffix."""
    if namespace:
        return [name for name, place in names if place == namespace]
    return [f"{name}.{place}" for name, place in names]


def service_names(page: bytes, namespace: str) -> list[str]:
    """Return the names of the services on the debug page `registryz`, formatted by `within`."""
    import msgspec

    services = [each["Attributes"] for each in msgspec.json.decode(page)]
    return within(namespace, [(each["Name"], each["Namespace"]) for each in services])
