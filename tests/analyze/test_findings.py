import re
from pathlib import Path

import pytest

from analyze.meshes import WEB, facts, istio
from weft.analyze.findings import OF_RIVALS, findings
from weft.api.parse import Parsed, parse
from weft.base.problem import Severity
from weft.cli.read.mesh_files import FileAdmission
from weft.files.documents import read_documents
from weft.inspect.rehearse.rehearsal import rehearsed
from weft.model.names import ObjectKey

WRONG = WEB.replace("app: web}, ports", "app: wbe}, ports") + istio("DestinationRule", "{host: nobody}")
WITH = re.compile(r"^# with: (\S+)$", re.MULTILINE)
CASES = Path(__file__).parent / "cases"
EXAMPLES = Path(__file__).parent.parent.parent / "examples"


def test_all_checks_run_and_all_findings_are_warnings_with_a_position():
    found = findings(facts(WRONG))
    assert [problem.where.object for problem in found] == ["Service shop/web", "DestinationRule shop/x"]
    assert {problem.severity for problem in found} == {Severity.WARNING}
    assert [(problem.where.file, problem.where.line) for problem in found] == [("mesh.yaml", 2), ("mesh.yaml", 17)]


def test_an_object_with_errors_gets_no_findings():
    found = findings(facts(WRONG), {ObjectKey("Service", "shop", "web")})
    assert [problem.where.object for problem in found] == ["DestinationRule shop/x"]


def test_the_examples_have_no_findings():
    text = "\n---\n".join(path.read_text() for path in sorted((EXAMPLES / "shop").glob("*.yaml")))
    assert findings(facts(text)) == ()


def with_refused(documents, refused=None):
    """As if one object had an error; others are taken as they are."""

    def read(document, domain):
        parsed = parse(document, domain)
        return Parsed(meant=parsed.values) if document.key == refused else parsed

    return rehearsed(documents, admit=FileAdmission(), least=Severity.INFO, read=read).problems


def case(path):
    text = path.read_text()
    beside = ((CASES / "with" / f"{name}.yaml").read_text() for name in WITH.findall(text))
    return [document for each in (text, *beside) for document in read_documents(each.encode(), "mesh.yaml").documents]


@pytest.mark.parametrize("code", sorted(OF_RIVALS))
def test_a_rejected_object_causes_no_findings_about_others(code):
    silenced = set()
    for documents in map(case, CASES.glob(f"{code}*.yaml")):
        told = {each.where for each in with_refused(documents) if each.code == code}
        for key in (document.key for document in documents):
            left = {each.where for each in with_refused(documents, key) if each.code == code}
            silenced |= {where for where in told - left if where.object != str(key)}
    assert silenced


@pytest.mark.parametrize("code", ["WFT0106", "WFT0118", "WFT0202", "WFT0212"])
def test_references_to_a_rejected_service_are_checked(code):
    documents = case(CASES / f"{code}.yaml")
    for key in (document.key for document in documents if document.key.kind == "Service"):
        assert code in {each.code for each in with_refused(documents, key)}


def test_among_objects_in_force_the_deciding_one_is_named():
    """The first of three is refused: it is not the one that decides."""
    text = WEB + "".join(istio("Sidecar", "{egress: [{hosts: [./*]}]}", name=name) for name in "abc")
    found = with_refused(read_documents(text.encode(), "mesh.yaml").documents, ObjectKey("Sidecar", "shop", "a"))
    told = [(each.where.object, each.what) for each in found if each.code == "WFT0404"]
    assert told == [
        (
            "Sidecar shop/c",
            "Sidecar b is for the whole namespace too and comes first by its name: this Sidecar is not used",
        )
    ]


@pytest.mark.parametrize("code", ["WFT0308", "WFT0321"])
def test_the_protocol_of_a_rejected_service_contradicts_no_other(code):
    documents = case(CASES / f"{code}.yaml")
    assert code in {each.code for each in with_refused(documents)}
    for key in (document.key for document in documents if document.key.kind == "Service"):
        assert code not in {each.code for each in with_refused(documents, key)}


def test_virtual_services_conflict_also_where_the_files_have_no_service_for_their_host():
    written = "---".join(
        f"""
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {{name: {name}, namespace: shop}}
spec: {{hosts: [api.example.com], http: [{{directResponse: {{status: 200}}}}]}}
"""
        for name in ("a", "b")
    )
    documents = read_documents(written.encode(), "mesh.yaml").documents
    problems = rehearsed(documents, "cluster.local", FileAdmission()).problems
    assert "WFT0108" in {problem.code for problem in problems if problem.where.object == "VirtualService shop/b"}
