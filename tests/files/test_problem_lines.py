from weft.base.problem import Problem, Where
from weft.files import problem_lines as lines
from weft.files.problem_lines import with_lines

RULE = """apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: web, namespace: shop}
spec:
  host: web
"""


def problem(file, field="spec.host"):
    return Problem(Where(str(file), 1, "DestinationRule shop/web", field), "is nobody's")


def where(*problems):
    return [each.where.line for each in with_lines(problems)]


def test_a_problem_is_put_at_the_line_of_its_field(tmp_path):
    file = tmp_path / "rule.yaml"
    file.write_text(RULE)
    assert where(problem(file)) == [5]
    assert where(problem(file, "spec.subsets[0]")) == [4]
    assert where(problem(file, "")) == [1]


def test_what_cannot_be_read_or_is_too_much_leaves_it_where_it_was(tmp_path, monkeypatch):
    file = tmp_path / "rule.yaml"
    file.write_text(RULE)
    assert where(problem(tmp_path / "gone.yaml"), problem("")) == [1, 1]
    monkeypatch.setattr(lines, "MOST_READ", 10)
    assert where(problem(file)) == [1]
