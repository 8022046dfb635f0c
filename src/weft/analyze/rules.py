"""DestinationRules for hosts that are not there, with subsets of nobody, or for callers that do not exist."""

from __future__ import annotations

from collections.abc import Iterator

from weft.analyze.facts import Facts
from weft.analyze.warning import meant_host, meant_labels, warning, written
from weft.base.problem import Problem
from weft.model.destination_rule import DestinationRule
from weft.model.names import Labels
from weft.model.service import Service


def of_rules(facts: Facts) -> Iterator[Problem]:
    for rule in facts.rules:
        services = facts.services_of(rule.host)
        if not services:
            hint = meant_host(rule.host, facts.by_host, facts.settings.domain)
            what = f"no Service or ServiceEntry has the host {rule.host}: the rule has no effect"
            yield warning(rule.origin, "spec.host", what, hint)
        elif not rule.host.startswith("*"):
            yield from _of_subsets(rule, services, facts)
        selector = rule.workload_selector
        if selector and facts.runs and not facts.selected(rule.namespace, selector):
            hint = meant_labels(selector, (runner.labels for runner in facts.runners.get(rule.namespace, ())))
            what = (
                f"no workload of namespace {rule.namespace} has the labels {written(selector)}: the rule is for nobody"
            )
            yield warning(rule.origin, "spec.workloadSelector", what, hint)


def _of_subsets(rule: DestinationRule, services: tuple[Service, ...], facts: Facts) -> Iterator[Problem]:
    there = [labels for service in services for labels in _labels_behind(service, facts)]
    if not there:  # said of the service, or nobody can know
        return
    for index, subset in enumerate(rule.subsets):
        if not any(set(subset.labels) <= set(labels) for labels in there):
            what = (
                f"nobody behind {rule.host} has the labels {written(subset.labels)}: "
                f"nobody answers calls to subset {subset.name!r}"
            )
            hint = meant_labels(subset.labels, there)
            yield warning(rule.origin, f"spec.subsets[{index}].labels", what, hint, line=subset.line)


def _labels_behind(service: Service, facts: Facts) -> tuple[Labels, ...]:
    if service.selector:
        return tuple(runner.labels for runner in facts.selected(service.namespace, service.selector))
    return tuple(endpoint.labels for endpoint in service.static_endpoints)
