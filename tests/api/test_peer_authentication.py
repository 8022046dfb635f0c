import pytest

from api.reading import document, told, value
from weft.api.parse import parse
from weft.model.peer_authentication import PeerAuthentication, TlsMode


def written(spec, namespace="shop"):
    return (
        "apiVersion: security.istio.io/v1\nkind: PeerAuthentication\n"
        f"metadata: {{name: default, namespace: {namespace}}}\nspec: {spec}"
    )


def closed(text):
    parsed = parse(document(text))
    assert not parsed.values and parsed.problems
    (found,) = parsed.closed
    return found


def test_reads_modes_of_a_workload_and_of_its_ports():
    found = value(
        written(
            "{selector: {matchLabels: {app: orders}}, mtls: {mode: STRICT}, "
            'portLevelMtls: {9090: {mode: DISABLE}, "7000": {}, 80: {mode: UNSET}}}'
        )
    )
    assert found.selector == (("app", "orders"),)
    assert (found.mode, found.ports) == (TlsMode.STRICT, ((80, None), (7000, None), (9090, TlsMode.DISABLE)))


@pytest.mark.parametrize("spec", ["{}", "{mtls: {}}", "{mtls: {mode: UNSET}}"])
def test_an_unset_mode_is_inherited(spec):
    assert value(written(spec)).mode is None


def test_an_object_without_a_spec_sets_no_mode():
    text = "apiVersion: security.istio.io/v1\nkind: PeerAuthentication\nmetadata: {name: default}"
    assert value(text).mode is None


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("{mtls: {mode: STRIC}}", "`mode` cannot be `STRIC` (did you mean `STRICT`?)"),
        ("{portLevelMtls: {80: {mode: STRICT}}}", "`portLevelMtls` needs a `selector`: a port belongs to a workload"),
        ("{selector: {matchLabels: {a: b}}, portLevelMtls: {http: {}}}", "`http` is not a port"),
        ("{selector: {matchLabels: {a: b}}, portLevelMtls: {0: {}}}", "`0` is not a port"),
        ("{selector: {matchLabels: {a: b}}, portLevelMtls: {}}", "`portLevelMtls` is empty"),
        ("{selector: {matchLabels: {a: b}}, portLevelMtls: []}", "`portLevelMtls` must be a mapping"),
        ('{selector: {matchLabels: {a: b}}, portLevelMtls: {80: {}, "080": {}}}', "port 80 is listed twice"),
        ("{mtls: {mdoe: STRICT}}", "unknown field `mdoe`"),
    ],
)
def test_reports_what_is_wrong(spec, said):
    (problem,) = told(written(spec))
    assert said in problem


def test_a_rejected_object_is_strict_for_the_workloads_it_selects():
    found = closed(written("{selector: {matchLabels: {app: orders}}, mtls: {mode: DISABEL}}"))
    assert isinstance(found, PeerAuthentication)
    assert (found.selector, found.mode, found.ports) == ((("app", "orders"),), TlsMode.STRICT, ())


@pytest.mark.parametrize(
    "spec", ["{selector: orders}", "{selector: {matchLabel: {app: orders}}}", "[]", "{mtls: {mode: {}}}"]
)
def test_a_rejected_object_that_cannot_be_parsed_is_strict_for_its_namespace(spec):
    found = closed(written(spec))
    assert (found.namespace, found.selector, found.mode) == ("shop", (), TlsMode.STRICT)


@pytest.mark.parametrize("labels", ["{app: 5}", "{app: or ders}", "{or ders: app}", "[app]"])
def test_an_invalid_selector_selects_the_namespace(labels):
    assert closed(written(f"{{selector: {{matchLabels: {labels}}}, mtls: {{mode: STRICT}}}}")).selector == ()


def test_an_object_of_an_unknown_version_is_strict():
    assert closed(written("{}").replace("/v1", "/v9")).mode is TlsMode.STRICT


def test_a_mode_beside_mtls_is_reported():
    (line,) = told(written("{mtls: , mode: STRICT}"))
    assert "`mode` belongs below `mtls` (indent it below `mtls:`)" in line
