"""The Gateway API's objects that did not become what their authors wanted: the conditions that do not hold, worded as
in their status on a cluster."""

from __future__ import annotations

from collections.abc import Iterator

from weft.analyze.facts import Facts
from weft.analyze.finding import finding
from weft.analyze.remedies import of_backend, of_listener, of_route
from weft.base.problem import Problem
from weft.mesh.gateway_api.attached import OWN_CLASS, Derived
from weft.model.gateway_api import GATEWAY_NAME
from weft.model.names import Origin
from weft.model.outcome import BackendFlaw, GatewayOutcome, StatusCondition


def of_attachments(facts: Facts) -> Iterator[Problem]:
    flaws: dict[tuple[Origin | None, BackendFlaw], None] = {}  # each once, however many parents its route has
    for derived in facts.standard:
        yield from _of_routes(derived, facts)
        flaws.update(((each.origin, flaw), None) for each in derived.routes for flaw in each.flaws)
        if derived.gateway is not None:
            yield from _of_listeners(derived.gateway, facts)
            yield from _of_proxies(derived.gateway, facts)
        for policy in derived.policies:
            for told in policy.conditions:
                if told.type == "Accepted" and not told.holds:
                    yield finding("WFT0904", policy.origin, "spec.targetRefs", _said(told), "")
    for origin, flaw in flaws:
        said, hint = f"{flaw.message} ({flaw.reason})", of_backend(flaw, facts)
        yield finding("WFT0902", origin, f"spec.rules[{flaw.rule}]", said, hint, line=flaw.line)
    for gateway in facts.classless:
        what = f"the class `{gateway.class_name}` is not weft's, and no GatewayClass has it: nothing serves this"
        yield finding("WFT0906", gateway.origin, "spec.gatewayClassName", what, f"weft's class is `{OWN_CLASS}`")


def _of_routes(derived: Derived, facts: Facts) -> Iterator[Problem]:
    for outcome in derived.routes:
        for told in outcome.conditions:
            if told.type == "Accepted" and not told.holds:
                field, hint = f"spec.parentRefs[{outcome.parent.index}]", of_route(outcome, told, facts)
                yield finding("WFT0901", outcome.origin, field, _said(told), hint)


def _of_listeners(outcome: GatewayOutcome, facts: Facts) -> Iterator[Problem]:
    for index, listener in enumerate(outcome.listeners):
        wrong = [told for told in listener.conditions if told.type in ("Accepted", "ResolvedRefs") and not told.holds]
        for told in wrong:
            hint = of_listener(outcome.gateway, index, told, facts)
            yield finding("WFT0903", outcome.origin, f"spec.listeners[{index}]", _said(told), hint)


def _of_proxies(outcome: GatewayOutcome, facts: Facts) -> Iterator[Problem]:
    key = outcome.gateway
    if facts.runs and not facts.selected(key.namespace, ((GATEWAY_NAME, key.name),)):
        what = f"no workload of {key.namespace} has the label {GATEWAY_NAME}: {key.name}: nothing serves this"
        yield finding("WFT0905", outcome.origin, "metadata.name", what, "run a gateway with that label")


def _said(told: StatusCondition) -> str:
    return f"{told.message} ({told.reason})"
