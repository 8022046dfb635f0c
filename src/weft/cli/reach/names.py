"""Names of pods, workloads and services: what a user typed comes in, its kind, name and namespace leave; and lists of
names as a shell completes them."""

from __future__ import annotations

from collections.abc import Iterable

from weft.cli.print.output import fail

# As kubectl abbreviates them. A mesh of this machine has only workloads and pods, whatever they are called.
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
    """Kind (or nothing), name and namespace of what somebody typed. `known`: what is certainly a namespace; a name may
    have dots of its own."""
    before, slash, name = word.rpartition("/")
    kind = KINDS.get(before.lower(), "") if slash else ""
    if slash and not kind:
        if known is None or before not in known:
            kinds = "deploy, sts, ds, rs, job, svc, pod"
            fail(f"`{word}`: there is no kind `{before}`", f"one of {kinds}, such as deploy/{name}", code=2)
        return "", name, before
    first, dot, last = name.rpartition(".")
    if dot and (known is None or last in known):
        if namespace and namespace != last:
            fail(f"two namespaces are named: {last} and {namespace}", "leave one of them out", code=2)
        return kind, first, last
    return kind, name, namespace


def within(namespace: str, names: Iterable[tuple[str, str]]) -> list[str]:
    """NAME.NAMESPACE; or those of one namespace, by their names alone."""
    if namespace:
        return [name for name, place in names if place == namespace]
    return [f"{name}.{place}" for name, place in names]


def service_names(page: bytes, namespace: str) -> list[str]:
    """Out of the page `registryz`, as `within`."""
    import msgspec

    known = [each["Attributes"] for each in msgspec.json.decode(page)]
    return within(namespace, [(each["Name"], each["Namespace"]) for each in known])
