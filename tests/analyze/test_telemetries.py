import msgspec

from analyze.meshes import WEB, facts, istio, said
from weft.analyze.telemetries import of_telemetries
from weft.model.access_log import LogProvider
from weft.model.settings import Settings

SHOP = "{accessLogging: [{providers: [{name: envoy}]}]}"


def telemetry(spec, name="x", namespace="shop"):
    return istio("Telemetry", spec, name, namespace).replace("networking.istio.io", "telemetry.istio.io")


def test_what_is_written_somewhere_is_well():
    assert said(WEB + telemetry(SHOP) + telemetry("{accessLogging: [{disabled: true}]}", "y", "bank")) == []
    both = telemetry("{selector: {matchLabels: {app: web}}, accessLogging: [{disabled: true}]}", "y")
    assert said(WEB + telemetry(SHOP) + both) == []


def test_a_provider_that_nobody_has_is_said_with_a_guess():
    assert said(WEB + telemetry("{accessLogging: [{providers: [{name: envoi}]}]}")) == [
        "Telemetry shop/x: spec.accessLogging[0].providers[0].name: warning: MeshConfig has no access log provider "
        "`envoi`: nothing is logged there (hint: did you mean `envoy`?)"
    ]


def test_a_telemetry_for_nobody_is_said():
    (line,) = said(WEB + telemetry("{selector: {matchLabels: {app: wbe}}, accessLogging: [{}]}"))
    assert "the Telemetry has no effect (hint: app: did you mean `web`?)" in line


def test_of_two_for_the_same_the_second_is_said_to_have_no_effect():
    (line,) = said(WEB + telemetry(SHOP, "a") + telemetry(SHOP, "b"))
    assert line.startswith("Telemetry shop/b: ")
    assert "Telemetry a is for the same workloads and comes first by its name: this one has no effect" in line


def test_a_provider_to_which_nothing_is_sent_is_said_where_it_is_named():
    found = facts(telemetry("{accessLogging: [{providers: [{name: otel}]}]}"))
    found = msgspec.structs.replace(found, settings=Settings(log_providers=(LogProvider("otel"),)))
    (problem,) = of_telemetries(found)
    assert problem.what.startswith("weft does not support the provider `otel`")
