"""Findings for Gateway API objects: one for each status condition that is not fulfilled, with the same message that
the condition has in the object's status on a cluster."""

from __future__ import annotations

from collections.abc import Iterator

from weft.analyze.facts import Facts
from weft.analyze.finding import finding
from weft.analyze.remedies import of_backend, of_client_certificate, of_listener, of_listener_set, of_route
from weft.base.problem import Problem
from weft.mesh.gateway_api.attached import OWN_CLASS, Derived
from weft.model.gateway_api import GATEWAY_NAME, ListenerSet, StandardGateway
from weft.model.names import Origin
from weft.model.outcome import INSECURE_VALIDATION, BackendFlaw, GatewayOutcome, ListenerSetOutcome, StatusCondition


def of_attachments(facts: Facts) -> Iterator[Problem]:
    flaws: dict[tuple[Origin | None, BackendFlaw], None] = {}  # once per flaw, even if its route has several parents
    for derived in facts.standard:
        yield from _of_routes(derived, facts)
        flaws.update(((each.origin, flaw), None) for each in derived.routes for flaw in each.flaws)
        if derived.gateway is not None:
            owner = facts.standard_gateways.get((derived.gateway.gateway.namespace, derived.gateway.gateway.name))
            yield from _of_listeners(derived.gateway, owner, facts)
            yield from _of_client_certificates(derived.gateway, facts)
            yield from _of_proxies(derived.gateway, facts)
        for listener_set in derived.listener_sets:
            yield from _of_listener_set(listener_set, facts)
        for policy in derived.policies:
            for condition in policy.conditions:
                if condition.type == "Accepted" and not condition.holds:
                    yield finding("WFT0904", policy.origin, "spec.targetRefs", _text(condition), "")
    for origin, flaw in flaws:
        text, hint = f"{flaw.message} ({flaw.reason})", of_backend(flaw, facts)
        yield finding("WFT0902", origin, f"spec.rules[{flaw.rule}]", text, hint, line=flaw.line)
    for gateway in facts.classless:
        what = (
            f"the class `{gateway.class_name}` is not weft's, and no GatewayClass has that name: no controller serves "
            "this Gateway"
        )
        yield finding("WFT0906", gateway.origin, "spec.gatewayClassName", what, f"weft's class is `{OWN_CLASS}`")


def _of_routes(derived: Derived, facts: Facts) -> Iterator[Problem]:
    for outcome in derived.routes:
        for condition in outcome.conditions:
            if condition.type == "Accepted" and not condition.holds:
                field, hint = f"spec.parentRefs[{outcome.parent.index}]", of_route(outcome, condition, facts)
                yield finding("WFT0901", outcome.origin, field, _text(condition), hint)


def _of_listener_set(outcome: ListenerSetOutcome, facts: Facts) -> Iterator[Problem]:
    key = outcome.listener_set
    yield from _of_listeners(outcome, facts.listener_sets.get((key.namespace, key.name)), facts)
    for condition in outcome.conditions:
        if condition.type == "Accepted" and condition.reason in ("NotAllowed", "ParentNotAccepted"):
            hint = of_listener_set(outcome, condition, facts)
            yield finding("WFT0909", outcome.origin, "spec.parentRef", _text(condition), hint)


def _of_listeners(
    outcome: GatewayOutcome | ListenerSetOutcome, owner: StandardGateway | ListenerSet | None, facts: Facts
) -> Iterator[Problem]:
    for index, listener in enumerate(outcome.listeners):
        wrong = [
            condition
            for condition in listener.conditions
            if condition.type in ("Accepted", "ResolvedRefs") and not condition.holds
        ]
        for condition in wrong:
            hint = of_listener(owner, index, condition, facts)
            yield finding("WFT0903", outcome.origin, f"spec.listeners[{index}]", _text(condition), hint)


def _of_client_certificates(outcome: GatewayOutcome, facts: Facts) -> Iterator[Problem]:
    for condition in outcome.conditions:
        if condition.type == INSECURE_VALIDATION and condition.holds:
            hint = "use `mode: AllowValidOnly`, which is the default"
            yield finding("WFT0907", outcome.origin, "spec.tls.frontend", condition.message, hint)
        if condition.type == "ResolvedRefs" and condition.reason in ("InvalidClientCertificateRef", "RefNotPermitted"):
            where = "spec.tls.backend.clientCertificateRef"
            yield finding(
                "WFT0908", outcome.origin, where, _text(condition), of_client_certificate(outcome, condition, facts)
            )


def _of_proxies(outcome: GatewayOutcome, facts: Facts) -> Iterator[Problem]:
    key = outcome.gateway
    if facts.runs and not facts.selected(key.namespace, ((GATEWAY_NAME, key.name),)):
        label = f"`{GATEWAY_NAME}: {key.name}`"
        what = f"no workload of namespace {key.namespace} has the label {label}: no proxy serves this Gateway"
        yield finding("WFT0905", outcome.origin, "metadata.name", what, "run a gateway with that label")


def _text(condition: StatusCondition) -> str:
    return f"{condition.message} ({condition.reason})"
