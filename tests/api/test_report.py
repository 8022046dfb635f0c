"""Problems are collected, sorted and limited; consequences of another error are not reported."""

from weft.api.document import Document
from weft.api.report import MOST_PROBLEMS, Consequence, DocumentReport
from weft.base.problem import Severity
from weft.model.names import ObjectKey


def made(**lines):
    places = {(name,): line for name, line in lines.items()}
    return DocumentReport(
        Document(ObjectKey("Service", "shop", "web"), "v1", {}, file="web.yaml", line=1, lines=places)
    )


class Mapping:
    """A mapping at the document's root; at most one of its fields is misspelled."""

    path = ()

    def __init__(self, misspelled=""):
        self.misspelled, self.asked = misspelled, 0

    def report_unknown(self):
        self.asked += 1

    def is_misspelled(self, name):
        return name == self.misspelled


def follows(cursor, *names, severity=Severity.ERROR):
    return Consequence(tuple((cursor, name) for name in names), ("spec",), "something is missing", "", severity)


def test_problems_are_returned_in_the_order_of_lines():
    report = made(a=9, b=3)
    report.error(("a",), "late")
    report.warning(("b",), "early", code="WFT0101")
    assert [(each.where.line, each.what, each.code) for each in report.finish()] == [
        (3, "early", "WFT0101"),
        (9, "late", ""),
    ]
    assert report.failed


def test_a_warning_does_not_set_failed():
    report = made()
    report.warning(("a",), "odd")
    report.consequence(follows(Mapping(), "x", severity=Severity.WARNING))
    assert len(report.finish()) == 2
    assert not report.failed


def test_consequences_of_an_error_or_a_misspelling_are_not_reported():
    for cursor, wrong in ((Mapping(), ("host", 0)), (Mapping("host"), ())):
        report = made()
        if wrong:
            report.error(wrong, "no host")
        report.consequence(follows(cursor, "host"))
        assert [each.what for each in report.finish()] == (["no host"] if wrong else [])
        assert report.failed  # whether the error is reported or not


def test_a_consequence_without_a_cause_is_reported():
    report = made()
    report.error(("port",), "no port")
    report.consequence(follows(Mapping("other"), "host"))
    assert [each.what for each in report.finish()] == ["no port", "something is missing"]


def test_every_cursor_reports_its_unknown_fields():
    report, cursor = made(), Mapping()
    report.opened(cursor)
    report.finish()
    assert cursor.asked == 1


def test_an_error_makes_all_paths_above_it_wrong():
    report = made()
    report.error(("spec", "http", 0), "no")
    assert report.is_wrong(("spec",)) and not report.is_wrong(("spec", "tcp"))


def test_lines_can_be_added_later():
    report = made()
    report.add_lines({("data", "mesh"): 40})
    report.error(("data", "mesh", "x"), "no")
    assert report.finish()[0].where.line == 40


def test_the_number_of_problems_is_limited():
    report = made()
    for number in range(MOST_PROBLEMS + 1):
        report.error((str(number),), "no")
    assert len(report.finish()) == MOST_PROBLEMS
