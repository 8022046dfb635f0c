from textwrap import dedent, indent

from api.reading import told, value
from weft.model.access_log import Reporter
from weft.model.telemetry import AccessLogging


def telemetry(spec, version="v1"):
    return (
        f"apiVersion: telemetry.istio.io/{version}\nkind: Telemetry\nmetadata: {{name: x, namespace: shop}}\nspec:\n"
        + indent(dedent(spec).strip("\n"), "  ")
    )


def test_reads_access_logging():
    found = value(
        telemetry(
            """
            selector: {matchLabels: {app: orders}}
            accessLogging:
            - match: {mode: SERVER}
              providers: [{name: json-log}, {name: envoy}]
              filter: {expression: response.code >= 400}
            - disabled: true
            - {}
            """,
            "v1alpha1",
        )
    )
    assert found.selector == (("app", "orders"),)
    assert found.access_logging == (
        AccessLogging(Reporter.SERVER, ("json-log", "envoy"), None, "response.code >= 400"),
        AccessLogging(disabled=True),
        AccessLogging(),
    )


def test_metrics_and_tracing_are_ignored_with_a_warning():
    assert told(
        telemetry("metrics: [{providers: [{name: prometheus}]}]\ntracing: [{randomSamplingPercentage: 5}]")
    ) == [
        "5 warning: `metrics` is ignored by this version of weft",
        "6 warning: `tracing` is ignored by this version of weft",
    ]


def test_an_expression_that_envoy_refuses_is_an_error():
    assert told(telemetry("accessLogging:\n- filter: {expression: 'response.code > = 400'}")) == [
        "6 Envoy cannot evaluate this CEL expression: at column 17: '=' (for example response.code >= 400)"
    ]
    assert told(telemetry("accessLogging:\n- filter: {}")) == ["6 `expression` is required"]


def test_a_condition_that_is_never_true_is_a_warning():
    assert told(telemetry("accessLogging:\n- filter: {expression: response.status >= 400}"))[0].startswith(
        "6 warning: there is no attribute `response.status`: the condition is never true"
    )


def test_reads_the_gateways_that_a_telemetry_applies_to():
    text = telemetry("targetRefs: [{kind: Gateway, name: edge, group: gateway.networking.k8s.io}]")
    assert (told(text), value(text).targets) == ([], ("Gateway edge",))
    (line,) = told(telemetry("targetRefs: [{kind: Service, name: web}]"))
    assert "this version of weft runs no waypoints" in line


def test_reports_what_is_wrong():
    assert told(telemetry("accessLogging: [{match: {mode: BOTH}}]"))[0].startswith("5 `mode` cannot be `BOTH`")
    assert told(telemetry("accessLogging: [{providers: [{}]}]")) == ["5 `name` is required"]
    assert told(telemetry("accesslogging: []")) == ["5 unknown field `accesslogging` (did you mean `accessLogging`?)"]
