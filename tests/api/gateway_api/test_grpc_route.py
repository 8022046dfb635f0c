import pytest

from api.gateway_api.objects import standard
from api.reading import told, value
from weft.model.gateway_api import RouteKind
from weft.model.virtual_service import MatchKind, StringMatch


def route(method):
    return standard(
        "GRPCRoute",
        f"""
        parentRefs: [{{group: "", kind: Service, name: web}}]
        rules:
          - matches: [{{method: {method}}}]
            backendRefs: [{{name: web, port: 80}}]
        """,
    )


@pytest.mark.parametrize(
    ("method", "kind", "path"),
    [
        ("{service: a.B, method: C}", MatchKind.EXACT, "/a.B/C"),
        ("{service: a.B}", MatchKind.PATH_PREFIX, "/a.B"),
        ("{method: C}", MatchKind.REGEX, "/[^/]+/C"),
        ("{type: RegularExpression, service: 'a.*'}", MatchKind.REGEX, "/(?:a.*)/(?:[^/]+)"),
        ("{type: RegularExpression, method: 'C|D'}", MatchKind.REGEX, "/(?:[^/]+)/(?:C|D)"),
    ],
)
def test_services_and_methods_are_paths(method, kind, path):
    found = value(route(method))
    assert found.kind is RouteKind.GRPC
    assert found.rules[0].matches[0].uri == StringMatch(kind, path)


@pytest.mark.parametrize(
    ("method", "problem"),
    [
        ("{}", "7 `method` needs a `service`, a `method`, or both"),
        ("{service: a/b}", "7 `a/b` is not the name of a gRPC service (for example shop.v1.Orders)"),
        ("{method: a.b}", "7 `a.b` is not the name of a gRPC method (for example Get)"),
    ],
)
def test_service_and_method_names_follow_grpcs_syntax(method, problem):
    assert told(route(method)) == [problem]
