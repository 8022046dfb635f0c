import pytest

from api.reading import document
from weft.api.authorization_values import check_paths, is_template
from weft.api.reader import root_of
from weft.api.report import DocumentReport

BODY = "apiVersion: v1\nkind: X\nmetadata: {name: a}\nspec: {}"


def against(path):
    report = DocumentReport(document(BODY))
    assert check_paths(root_of(report), "paths", (path,)) == (path,)
    root_of(report).ignored("apiVersion", "kind", "metadata", "spec")
    return [problem.severity for problem in report.finish() if "unknown" not in problem.what]


@pytest.mark.parametrize(
    "path",
    ["/", "*", "/a", "/a/*", "*.css", "/a;b=c", "/a%2Fb", "/a%20b", "/{*}", "/a/{*}/b/{**}", "/a/{**}/c", "/a.b/..c"],
)
def test_paths_that_requests_can_have_get_no_warning(path):
    assert against(path) == []


@pytest.mark.parametrize("path", ["a", "/a/./b", "/a/..", "/a\\b", "/%41", "/%7e", "/a b", "/a*b", "*a*", "/foo/{bar}"])
def test_paths_that_no_request_has_get_a_warning(path):
    assert against(path) == ["warning"]


@pytest.mark.parametrize("path", ["/{*}a", "/{**}/{**}", "/{*}/*", "{*}/a", "/{*}/{a=*}", "/{**}/{*}"])
def test_invalid_templates_are_errors(path):
    assert "error" in against(path)


def test_only_the_two_wildcards_make_a_template():
    assert is_template("/a/{*}") and is_template("/{**}")
    assert not is_template("/a/{b}") and not is_template("/a/*")
