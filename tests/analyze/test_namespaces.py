"""Labels of namespaces: the cases of WFT0801, WFT0802 and WFT0816 have the plain ones."""

from analyze.meshes import WEB, facts
from weft.analyze.namespaces import of_namespaces


def found(labels, name="shop"):
    text = f"{WEB}---\napiVersion: v1\nkind: Namespace\nmetadata: {{name: {name}, labels: {labels}}}\n"
    return [problem.code for problem in of_namespaces(facts(text))]


def test_one_injection_label_or_none_with_the_local_engine_has_no_findings():
    assert found("{istio-injection: disabled}") == []
    assert found("{istio.io/rev: canary}") == []
    assert found("{}") == []


def test_a_namespace_may_have_two_findings():
    assert found("{istio-injection: 'yes', istio.io/rev: canary}") == ["WFT0801", "WFT0802"]
