"""Labels of namespaces: the cases of WFT0801, WFT0802 and WFT0816 have the plain ones."""

from analyze.meshes import WEB, facts
from weft.analyze.namespaces import of_namespaces


def found(labels, name="shop"):
    text = f"{WEB}---\napiVersion: v1\nkind: Namespace\nmetadata: {{name: {name}, labels: {labels}}}\n"
    return [problem.code for problem in of_namespaces(facts(text))]


def test_one_label_is_well_and_so_is_none_where_the_engine_of_this_machine_gives_the_proxies():
    assert found("{istio-injection: disabled}") == []
    assert found("{istio.io/rev: canary}") == []
    assert found("{}") == []


def test_a_namespace_may_be_wrong_in_two_ways():
    assert found("{istio-injection: 'yes', istio.io/rev: canary}") == ["WFT0801", "WFT0802"]
