import msgspec

from analyze.meshes import WEB, facts, istio, said
from weft.analyze.telemetries import of_telemetries
from weft.model.access_log import LogProvider
from weft.model.settings import Settings

SHOP = "{accessLogging: [{providers: [{name: envoy}]}]}"


def telemetry(spec, name="x", namespace="shop"):
    return istio("Telemetry", spec, name, namespace).replace("networking.istio.io", "telemetry.istio.io")


def test_telemetries_of_different_namespaces_or_levels_have_no_findings():
    assert said(WEB + telemetry(SHOP) + telemetry("{accessLogging: [{disabled: true}]}", "y", "bank")) == []
    both = telemetry("{selector: {matchLabels: {app: web}}, accessLogging: [{disabled: true}]}", "y")
    assert said(WEB + telemetry(SHOP) + both) == []


def test_a_missing_provider_is_reported_with_a_guess():
    assert said(WEB + telemetry("{accessLogging: [{providers: [{name: envoi}]}]}")) == [
        "Telemetry shop/x: spec.accessLogging[0].providers[0].name: warning: MeshConfig has no access log provider "
        "`envoi`: the Telemetry logs nothing to it (hint: did you mean `envoy`?)"
    ]


def test_a_telemetry_that_selects_no_workload_is_reported():
    (line,) = said(WEB + telemetry("{selector: {matchLabels: {app: wbe}}, accessLogging: [{}]}"))
    assert "the Telemetry has no effect (hint: app: did you mean `web`?)" in line


def test_the_newer_of_two_telemetries_for_the_same_workloads_is_reported():
    (line,) = said(WEB + telemetry(SHOP, "a") + telemetry(SHOP, "b"))
    assert line.startswith("Telemetry shop/b: ")
    assert "Telemetry a is for the same workloads and comes first by its name: this Telemetry has no effect" in line


def test_an_unsupported_provider_is_reported_where_it_is_named():
    found = facts(telemetry("{accessLogging: [{providers: [{name: otel}]}]}"))
    found = msgspec.structs.replace(found, settings=Settings(log_providers=(LogProvider("otel"),)))
    (problem,) = of_telemetries(found)
    assert problem.what.startswith("weft does not support the provider `otel`")
