"""Reads Istio's Telemetry. Only access logging is supported; metrics and tracing are ignored, with a warning."""

from __future__ import annotations

from weft.api import cel
from weft.api.metadata import Meta, selector
from weft.api.reader import Fields
from weft.api.targets import read_targets
from weft.model.access_log import Reporter
from weft.model.telemetry import AccessLogging, Telemetry


def read_telemetry(root: Fields, meta: Meta) -> tuple[Telemetry, ...]:
    spec = root.fields("spec", required=True)
    if spec is None:
        return ()
    spec.unsupported("metrics", "tracing")
    return (
        Telemetry(
            name=meta.name,
            namespace=meta.namespace,
            selector=selector(spec, "selector", "matchLabels") or (),
            targets=read_targets(spec),
            access_logging=tuple(_access_logging(rule) for rule in spec.items("accessLogging")),
            created=meta.created,
            origin=meta.origin,
        ),
    )


def _access_logging(rule: Fields) -> AccessLogging:
    match = rule.fields("match")
    mode = match.choice("mode", tuple(Reporter), default=Reporter.BOTH) if match else Reporter.BOTH
    return AccessLogging(
        reporter=Reporter(mode),
        providers=tuple(provider.text("name", required=True, most=255) for provider in rule.items("providers")),
        disabled=rule.boolean("disabled"),
        filter=_filter(rule),
    )


def _filter(rule: Fields) -> str:
    fields = rule.fields("filter")
    if fields is None:
        return ""
    expression = fields.text("expression", required=True, most=cel.MOST_LENGTH)
    if not expression:
        return ""
    flaw = cel.flaw(expression)
    if flaw:
        what = f"Envoy cannot evaluate this CEL expression: {flaw}"
        fields.error("expression", what, "for example response.code >= 400")
        return ""
    for name, hint in cel.strangers(expression):
        fields.warning("expression", f"there is no attribute `{name}`: the condition is never true", hint)
    return expression
