"""Findings about Telemetries that name providers that do not exist, that an older Telemetry overrides, or that
select no workload."""

from __future__ import annotations

from collections.abc import Iterator

from weft.analyze.facts import Facts
from weft.analyze.finding import ahead, finding, meant_labels, written
from weft.base.problem import Problem
from weft.base.suggest import did_you_mean
from weft.model.telemetry import Telemetry


def of_telemetries(facts: Facts) -> Iterator[Problem]:
    effective: dict[tuple[str, object], Telemetry] = {}
    owners: dict[tuple[str, str], Telemetry] = {}
    for telemetry in sorted(facts.telemetries, key=_age):
        yield from _of_providers(telemetry, facts)
        selector = telemetry.selector
        if selector and facts.runs and not facts.selected(telemetry.namespace, selector):
            hint = meant_labels(selector, (runner.labels for runner in facts.runners.get(telemetry.namespace, ())))
            what = (
                f"no workload of namespace {telemetry.namespace} has the labels {written(selector)}: "
                "the Telemetry has no effect"
            )
            yield finding("WFT0603", telemetry.origin, "spec.selector", what, hint)
        first = effective.setdefault((telemetry.namespace, (selector, telemetry.targets)), telemetry)
        if first is not telemetry:
            why = ahead(first, telemetry)
            what = f"Telemetry {first.name} is for the same workloads and {why}: this Telemetry has no effect"
            yield finding("WFT0604", telemetry.origin, "", what, "merge both into one Telemetry")
        elif selector:
            yield from _of_overlap(telemetry, owners, facts)


def _of_overlap(telemetry: Telemetry, owners: dict[tuple[str, str], Telemetry], facts: Facts) -> Iterator[Problem]:
    """Findings about workloads of `telemetry` that an older Telemetry with other labels selects, too. `owners`: the
    oldest Telemetry of each workload, by namespace and name of the workload; this function adds the workloads of
    `telemetry`."""
    for runner in facts.selected(telemetry.namespace, telemetry.selector):
        first = owners.setdefault((telemetry.namespace, runner.name), telemetry)
        if first is not telemetry:
            what = (
                f"Telemetry {first.name} selects the workload {runner.name} too and {ahead(first, telemetry)}: this "
                "Telemetry has no effect on it"
            )
            yield finding(
                "WFT0604", telemetry.origin, "spec.selector", what, "let only one of them select the workload"
            )
            return


def _of_providers(telemetry: Telemetry, facts: Facts) -> Iterator[Problem]:
    providers = {provider.name.lower(): provider for provider in facts.settings.log_providers}
    for index, rule in enumerate(telemetry.access_logging):
        for number, name in enumerate(rule.providers):
            field = f"spec.accessLogging[{index}].providers[{number}].name"
            if name.lower() not in providers:
                hint = did_you_mean(name, [provider.name for provider in facts.settings.log_providers])
                what = f"MeshConfig has no access log provider `{name}`: the Telemetry logs nothing to it"
                yield finding("WFT0601", telemetry.origin, field, what, hint)
            elif providers[name.lower()].log is None and not rule.disabled:
                what = (
                    f"weft does not support the provider `{name}`: access logs go only to files that proxies may open"
                )
                yield finding(
                    "WFT0602",
                    telemetry.origin,
                    field,
                    what,
                    "use an `envoyFileAccessLog`, and collect the logs from its file",
                )


def _age(telemetry: Telemetry) -> tuple[str, str]:
    """Return the sort key of a Telemetry, with which the oldest comes first: the same order as in
    `mesh/policies.py`."""
    return (telemetry.created or "9999", telemetry.name)
