"""Sidecars that let in nothing under a name, or that are for workloads nobody has."""

from __future__ import annotations

from collections.abc import Iterator

from weft.analyze.facts import Facts
from weft.analyze.warning import meant_host, meant_labels, warning, written
from weft.base.problem import Problem
from weft.base.suggest import did_you_mean
from weft.model.names import full_host, host_covers
from weft.model.sidecar import Sidecar


def of_sidecars(facts: Facts) -> Iterator[Problem]:
    for sidecar in facts.sidecars:
        for number, listener in enumerate(sidecar.egress):
            for index, entry in enumerate(listener.hosts):
                what, hint = _against(entry, sidecar, facts)
                if what:
                    yield warning(sidecar.origin, f"spec.egress[{number}].hosts[{index}]", what, hint)
        if sidecar.selector and facts.runs and not facts.selected(sidecar.namespace, sidecar.selector):
            labels = (runner.labels for runner in facts.runners.get(sidecar.namespace, ()))
            what = (
                f"no workload of namespace {sidecar.namespace} has the labels {written(sidecar.selector)}: "
                "the Sidecar is for nobody"
            )
            yield warning(sidecar.origin, "spec.workloadSelector", what, meant_labels(sidecar.selector, labels))


def _against(entry: str, sidecar: Sidecar, facts: Facts) -> tuple[str, str]:
    """What is wrong with an egress host, and a hint; empty if nothing."""
    owner, slash, host = entry.partition("/")
    if not slash or owner == "~":
        return "", ""
    namespace = sidecar.namespace if owner == "." else owner
    if host == "*":
        # A namespace with nothing to call yet is nothing to warn of, but one that nobody has heard of is.
        if namespace == "*" or namespace in facts.namespaces:
            return "", ""
        return f"there is no namespace {namespace}: `{entry}` shows nothing", did_you_mean(namespace, facts.namespaces)
    owners = {each.namespace for each in facts.services_of(host)} | {
        each.namespace for each in facts.virtual_services if any(host_covers(host, routed) for routed in each.hosts)
    }
    if owners and (namespace == "*" or namespace in owners):
        return "", ""
    what = f"`{entry}` shows nothing: no such host"
    if owners:
        return f"{what} in namespace {namespace}", f"it is in {sorted(owners)[0]}: write {sorted(owners)[0]}/{host}"
    short = full_host(host, sidecar.namespace if namespace == "*" else namespace, facts.settings.domain)
    if short in facts.by_host and short != host:
        return what, f"a Sidecar wants full names: write {owner}/{short}"
    return what, meant_host(host, facts.by_host, facts.settings.domain)
