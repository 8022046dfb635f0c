from weft.base.problem import Problem, Where
from weft.control.problems import MOST_PER_TOPIC, Problems


def problem(line, what="wrong"):
    return Problem(Where("a.yaml", line), what)


def test_a_problem_disappears_with_its_cause():
    problems = Problems()
    problems.put("a", [problem(2), problem(1)])
    problems.put("b", [problem(3)])
    assert [p.where.line for p in problems.all()] == [1, 2, 3]
    problems.put("a", [])
    assert [p.where.line for p in problems.all()] == [3]


def test_only_new_problems_are_logged(caplog):
    problems = Problems()
    problems.put("a", [problem(1)])
    problems.put("a", [problem(1), problem(2)])
    assert [record.args for record in caplog.records] == [(problem(1),), (problem(2),)]


def test_one_topic_cannot_fill_the_memory():
    problems = Problems()
    problems.put("a", (problem(line) for line in range(MOST_PER_TOPIC + 5)))
    assert len(problems.all()) == MOST_PER_TOPIC
