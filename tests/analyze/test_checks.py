"""Every check finds its mistake on its line, and nothing where the mistake is mended: `cases/README.md`."""

import re
from pathlib import Path

import pytest

from weft.analyze.checks import AREAS, CHECKS, RETIRED, in_area
from weft.cli.read.mesh_files import FileAdmission
from weft.files.documents import read_documents
from weft.inspect.rehearse.examination import examine

CASES = Path(__file__).parent / "cases"
SOURCES = Path(__file__).parent.parent.parent / "src" / "weft"
MARK = re.compile(r"# ((?:WFT\d{4}(?:, )?)+)$")
WELL = re.compile(r"^# well: (.*?) → ?(.*)$", re.MULTILINE)
WITH = re.compile(r"^# with: (\S+)$", re.MULTILINE)
FILES = sorted(CASES.glob("*.yaml"))


def expected(text):
    return sorted(
        (line, code)
        for line, row in enumerate(text.splitlines(), start=1)
        if (found := MARK.search(row))
        for code in found[1].split(", ")
    )


def found(text, beside):
    documents, problems = [], []
    texts = {"case.yaml": text} | {f"{name}.yaml": (CASES / "with" / f"{name}.yaml").read_text() for name in beside}
    for name, content in texts.items():
        reading = read_documents(content.encode(), name)
        documents += reading.documents
        problems += reading.problems
    assert problems == []
    return examine(documents, admit=FileAdmission()).problems


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_mistake_is_found_on_its_line_and_nothing_else(file):
    text = file.read_text()
    assert any(code == file.stem[:7] for _, code in expected(text)), "the case does not mark what it is named for"
    problems = found(text, WITH.findall(text))
    assert sorted((problem.where.line, problem.code) for problem in problems) == expected(text), list(
        map(str, problems)
    )
    assert {problem.where.file for problem in problems} == {"case.yaml"}
    assert all(problem.severity is CHECKS[problem.code].severity for problem in problems)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_corrected_case_has_no_finding(file):
    text = file.read_text()
    beside = WITH.findall(text)
    changes = WELL.findall(text)
    assert changes, "the case does not say how it is mended"
    text = WELL.sub("#", text)
    for before, after in changes:
        assert before in text, before
        text = text.replace(before, after.replace(r"\n", "\n"))
    assert [str(problem) for problem in found(text, beside)] == []


def test_every_check_that_needs_no_cluster_has_a_case():
    cases = {file.stem[:7] for file in FILES}
    assert {code for code, check in CHECKS.items() if not check.live} - cases == ELSEWHERE


# Found where files and running programs are at hand, and tested there.
ELSEWHERE = {
    "WFT0214",  # tests/cli/read/test_certificate_files.py
    "WFT0314",  # tests/translate/test_findings.py
    "WFT0818",  # tests/cli/read/test_programs.py
    "WFT0823",  # tests/cli/read/test_readable_keys.py
}


def test_codes_are_unique_in_an_area_and_in_order():
    codes = list(CHECKS)
    assert codes == sorted(codes)
    assert all(re.fullmatch(r"WFT\d{4}", code) and code[3:5] in AREAS for code in codes)
    assert not RETIRED & set(codes)
    assert sum(len(in_area(area)) for area in AREAS) == len(codes)


def test_the_codes_in_the_source_and_in_the_table_are_the_same():
    named = set()
    for source in SOURCES.rglob("*.py"):
        if source.name != "checks.py":
            named |= set(re.findall(r"WFT\d{4}", source.read_text()))
    assert named == set(CHECKS)
