import pytest

from model.builders import service
from weft.base.problem import Problem, Where
from weft.explain.decision import DecisionStage, Explanation, Kind, ObjectSource, Outcome, Step, Verdict
from weft.inspect.ask.taken_routes import is_of_another, taken_routes
from weft.mesh.mesh import Mesh
from weft.model.names import ObjectKey
from weft.model.virtual_service import HttpRoute, L4Route, VirtualService

KEY = ObjectKey("VirtualService", "shop", "web")


def taken(*lines, of=(10, 20, 30)):
    mesh = Mesh()
    http = tuple(HttpRoute(line=line) for line in of)
    mesh.apply(KEY, (VirtualService("web", "shop", ("web",), http=http, tcp=(L4Route(line=40),)),))
    mesh.apply(ObjectKey("Service", "shop", "web"), (service("web"),))
    written = [ObjectSource("VirtualService", "shop", "web", "web.yaml", line) for line in lines]
    sources = (*written, ObjectSource("Service", "shop", "web", "web.yaml", 30))
    outcome = Outcome(1.0, (Step(DecisionStage.ROUTE, "", sources),), Verdict(Kind.DELIVERED, ""))
    return taken_routes(mesh, Explanation((outcome,)))


def problem(field="", line=0, what=""):
    return Problem(Where("web.yaml", line, str(KEY), field), what)


@pytest.mark.parametrize(
    ("told", "another"),
    [
        (problem("spec.http[1].timeout", 20), False),
        (problem("spec.http[0].timeout", 10), True),
        (problem("spec.http[2].timeout", 30), True),
        (problem("spec.http[0].match[0].port", 10), False),
        (problem("spec.http[2].match[0].port", 30), True),
        (problem("spec.http[2]", 30, "http[1] (line 20) matches every request that it matches"), False),
        (problem("spec.http[2]", 30, "http[0] (line 10) matches every request that it matches"), True),
        (problem("spec.tcp", 40), True),
        (problem("spec.http", 9), False),
        (problem("spec.hosts[0]", 35), False),
        (problem(line=1), False),
        (problem(line=12), True),
        (problem(line=22), False),
        (problem(line=31), True),
        (problem(line=41), True),
    ],
)
def test_a_finding_is_kept_if_it_is_about_the_route_taken_or_the_whole_object(told, another):
    assert is_of_another(told, taken(1, 20)) is another


def test_the_routes_of_all_outcomes_count_as_taken():
    assert taken(1, 10, 30)[str(KEY)].numbers == {0, 2}


@pytest.mark.parametrize("found", [taken(), taken(0, of=(0, 0)), taken(1)])
def test_without_lines_every_finding_is_kept(found):
    assert not is_of_another(problem("spec.http[1].timeout", 20), found)


def test_routes_on_one_line_are_not_distinguished():
    assert not is_of_another(problem(line=10), taken(10, of=(10, 10)))
