from pathlib import Path

from analyze.meshes import WEB, facts, istio
from weft.analyze.findings import findings
from weft.base.problem import Severity
from weft.model.names import ObjectKey

WRONG = WEB.replace("app: web}, ports", "app: wbe}, ports") + istio("DestinationRule", "{host: nobody}")
EXAMPLES = Path(__file__).parent.parent.parent / "examples"


def test_all_themes_are_looked_at_and_all_findings_are_warnings_with_a_place():
    found = findings(facts(WRONG))
    assert [problem.where.object for problem in found] == ["Service shop/web", "DestinationRule shop/x"]
    assert {problem.severity for problem in found} == {Severity.WARNING}
    assert [(problem.where.file, problem.where.line) for problem in found] == [("mesh.yaml", 2), ("mesh.yaml", 17)]


def test_an_object_with_errors_of_its_own_is_left_in_peace():
    found = findings(facts(WRONG), {ObjectKey("Service", "shop", "web")})
    assert [problem.where.object for problem in found] == ["DestinationRule shop/x"]


def test_the_examples_are_well():
    text = "\n---\n".join(path.read_text() for path in sorted((EXAMPLES / "shop").glob("*.yaml")))
    assert findings(facts(text)) == ()
