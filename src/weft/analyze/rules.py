"""Findings about DestinationRules for hosts, ports or callers that do not exist, with empty subsets, contradicting
each other, or with locality settings that have no effect."""

from __future__ import annotations

from collections.abc import Iterator

from weft.analyze.facts import Facts
from weft.analyze.finding import ahead, finding, meant_host, meant_labels, written
from weft.base.problem import Problem
from weft.mesh.claims import strength
from weft.model.destination_rule import DestinationRule, levels
from weft.model.locality import matches
from weft.model.names import Labels
from weft.model.service import Resolution, Service

_DEFAULT_EJECTION = 10  # percent; Envoy's default of `max_ejection_percent`


def of_rules(facts: Facts) -> Iterator[Problem]:
    older: dict[tuple[str, str, Labels, tuple[str, ...]], list[DestinationRule]] = {}
    for rule in sorted(facts.rules, key=strength):
        alike = older.setdefault((rule.namespace, rule.host, rule.workload_selector, rule.export_to), [])
        yield from _of_merging(rule, alike)
        alike.append(rule)
        services = facts.services_of(rule.host)
        if not services:
            hint = meant_host(rule.host, facts.by_host, facts.settings.domain)
            what = f"no Service or ServiceEntry has the host {rule.host}: the rule has no effect"
            yield finding("WFT0201", rule.origin, "spec.host", what, hint)
        elif not rule.host.startswith("*"):
            yield from _of_subsets(rule, services, facts)
            yield from _of_ports(rule, services)
            yield from _of_places(rule, services, facts)
            yield from _of_ejection(rule, services, facts)
        selector = rule.workload_selector
        if selector and facts.runs and not facts.selected(rule.namespace, selector):
            hint = meant_labels(selector, (runner.labels for runner in facts.runners.get(rule.namespace, ())))
            what = (
                f"no workload of namespace {rule.namespace} has the labels {written(selector)}: the rule has no effect"
            )
            yield finding("WFT0203", rule.origin, "spec.workloadSelector", what, hint)


def _of_merging(rule: DestinationRule, older: list[DestinationRule]) -> Iterator[Problem]:
    """Findings about the traffic policy and the subsets of a rule that are not used, because of the rules in `older`
    for the same host. Rules for one host are merged: only the oldest traffic policy is used, as a whole, and of
    subsets with the same name only the oldest."""
    hint = "merge both into one rule"
    decided = next((each for each in older if each.policy is not None), None)
    if decided is not None and rule.policy is not None:
        what = (
            f"DestinationRule {decided.name} is for {rule.host} too and {ahead(decided, rule)}: "
            "its trafficPolicy is used instead of this rule's"
        )
        yield finding("WFT0204", rule.origin, "spec.trafficPolicy", what, hint)
    for index, subset in enumerate(rule.subsets):
        first = next((each for each in older if any(other.name == subset.name for other in each.subsets)), None)
        if first is not None:
            whose = f"DestinationRule {first.name} {ahead(first, rule)}"
            what = f"{whose} and has a subset {subset.name} too: that subset is used instead of this one"
            yield finding("WFT0204", rule.origin, f"spec.subsets[{index}]", what, hint, line=subset.line)


def _of_subsets(rule: DestinationRule, services: tuple[Service, ...], facts: Facts) -> Iterator[Problem]:
    there = [labels for service in services for labels in _labels_behind(service, facts)]
    if not there:  # reported for the service, or its workloads are unknown
        return
    for index, subset in enumerate(rule.subsets):
        if not any(set(subset.labels) <= set(labels) for labels in there):
            what = (
                f"no workload behind {rule.host} has the labels {written(subset.labels)}: "
                f"calls to subset {subset.name!r} fail"
            )
            hint = meant_labels(subset.labels, there)
            yield finding("WFT0202", rule.origin, f"spec.subsets[{index}].labels", what, hint, line=subset.line)


def _of_ports(rule: DestinationRule, services: tuple[Service, ...]) -> Iterator[Problem]:
    numbers = {port.number for service in services for port in service.ports}
    placed = [("spec.trafficPolicy", rule.policy, 0)]
    placed += [(f"spec.subsets[{at}].trafficPolicy", each.policy, each.line) for at, each in enumerate(rule.subsets)]
    for field, policy, line in placed:
        for index, (number, _) in enumerate(policy.ports if policy else ()):
            if number not in numbers:
                what = f"{rule.host} has no port {number}: this entry has no effect"
                hint = f"it has {', '.join(map(str, sorted(numbers)[:12])) or 'none'}"
                yield finding("WFT0212", rule.origin, f"{field}.portLevelSettings[{index}]", what, hint, line=line)


def _of_places(rule: DestinationRule, services: tuple[Service, ...], facts: Facts) -> Iterator[Problem]:
    """Findings about locality settings: failover without outlier detection, and `distribute` to localities without
    endpoints."""
    there = {place for service in services for place in _places_behind(service, facts)}
    field = "spec.trafficPolicy.loadBalancer.localityLbSetting"
    detected = any(level.outlier_detection is not None for level in levels(rule))
    for level in levels(rule):
        setting = level.load_balancer.locality if level.load_balancer is not None else None
        if setting is None or not setting.enabled:
            continue
        if (setting.failover or setting.failover_priority) and not detected:
            what = (
                f"without outlier detection unhealthy endpoints of {rule.host} are not detected: "
                "there is no failover, and all endpoints are called alike"
            )
            yield finding("WFT0215", rule.origin, field, what, "add `outlierDetection`")
        for each in setting.distribute:
            lost = [place for place, _ in each.to if not any(matches(one, place) for one in there)]
            if there and len(lost) == len(each.to):
                what = f"no endpoint of {rule.host} is in {', '.join(lost)}: calls from {each.origin} fail"
                yield finding(
                    "WFT0216", rule.origin, field, what, f"the host's endpoints are in {', '.join(sorted(there))}"
                )


def _of_ejection(rule: DestinationRule, services: tuple[Service, ...], facts: Facts) -> Iterator[Problem]:
    """Findings about outlier detection that can eject no endpoint, because the service has too few."""
    fails_over = len({place for service in services for place in _places_behind(service, facts)}) > 1
    counts = [_endpoints_behind(service, facts) for service in services]
    count = min((each for each in counts if each), default=0)
    if not count or None in counts:
        return
    for level in levels(rule):
        detection = level.outlier_detection
        share = detection.max_ejection_percent if detection is not None else None
        if detection is None or share == 0 or (share is None and fails_over):
            continue  # 0 is on purpose
        percent = _DEFAULT_EJECTION if share is None else share
        if count * percent < 100:
            default = " (the default)" if share is None else ""
            what = (
                f"at most {percent} %{default} of the endpoints of {rule.host} may be ejected, and it has {count}: no "
                "endpoint is ever ejected"
            )
            hint = f"set `maxEjectionPercent` to at least {-(-100 // count)}"
            yield finding("WFT0225", rule.origin, "spec.trafficPolicy.outlierDetection", what, hint)


def _endpoints_behind(service: Service, facts: Facts) -> int | None:
    """The number of endpoints of a service; None if it is not known."""
    if not service.selector:
        return len(service.static_endpoints) if service.resolution is Resolution.STATIC else None
    counts = [runner.count for runner in facts.selected(service.namespace, service.selector)]
    return sum(each for each in counts if each is not None) if None not in counts else None


def _places_behind(service: Service, facts: Facts) -> tuple[str, ...]:
    if service.selector:
        selected = facts.selected(service.namespace, service.selector)
        return tuple(each.instance.locality for each in selected if each.instance.locality)
    return tuple(endpoint.locality for endpoint in service.static_endpoints if endpoint.locality)


def _labels_behind(service: Service, facts: Facts) -> tuple[Labels, ...]:
    if service.selector:
        return tuple(runner.labels for runner in facts.selected(service.namespace, service.selector))
    return tuple(endpoint.labels for endpoint in service.static_endpoints)
