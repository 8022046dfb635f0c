from datetime import timedelta

import pytest

from translate.views import route, routing
from weft.model.virtual_service import Delegate, HttpMatch, HttpRoute, MatchKind, Retries, StringMatch
from weft.translate.delegates import written_out

PREFIX, EXACT, REGEX = MatchKind.PREFIX, MatchKind.EXACT, MatchKind.REGEX


def _under(kind, value, **more):
    return HttpMatch(uri=StringMatch(kind, value), **more)


def _joined(root_match, leaf_match):
    root = HttpRoute(name="root", match=(root_match,), delegate=Delegate("leaf", "shop"))
    leaf = routing(route(name="leaf", match=(leaf_match,)), name="leaf", hosts=())
    return written_out(routing(root), (leaf,))


def test_names_are_joined_and_absent_fields_inherited():
    root = HttpRoute(
        name="root", delegate=Delegate("leaf", "shop"), timeout=timedelta(seconds=6), retries=Retries(attempts=1)
    )
    leaf = routing(route(name="a", timeout=timedelta(seconds=2)), route(name="b"), name="leaf", hosts=())
    (first, second), dropped = written_out(routing(root), (leaf,))
    assert (first.route.name, second.route.name, dropped) == ("root-a", "root-b", ())
    assert (first.route.timeout.seconds, second.route.timeout.seconds) == (2, 6)
    assert second.route.retries.attempts == 1
    assert [origin.key.name for origin in first.origins] == ["leaf", "orders"]


@pytest.mark.parametrize(
    ("root", "leaf", "kept"),
    [
        (_under(PREFIX, "/a"), _under(PREFIX, "/a/b"), True),
        (_under(PREFIX, "/a"), _under(EXACT, "/a/b"), True),
        (_under(PREFIX, "/a"), _under(PREFIX, "/b"), False),
        (_under(EXACT, "/a"), _under(PREFIX, "/a"), False),
        (_under(PREFIX, "/a"), _under(REGEX, "/a.*"), False),
        (_under(REGEX, "/a.*"), _under(REGEX, "/a.*"), False),
        (_under(REGEX, "/a.*"), HttpMatch(method=StringMatch(REGEX, "GET|PUT")), True),
        (
            HttpMatch(headers=(("x", StringMatch(MatchKind.PRESENT)),)),
            HttpMatch(headers=(("x", StringMatch(REGEX, "2")),)),
            False,
        ),
        (_under(PREFIX, "/a"), HttpMatch(method=StringMatch(EXACT, "GET")), True),
        (HttpMatch(port=80), HttpMatch(port=81), False),
        (HttpMatch(source_namespace="a"), HttpMatch(source_namespace="b"), False),
        (HttpMatch(source_labels=(("a", "1"),)), HttpMatch(source_labels=(("a", "2"),)), False),
        (
            HttpMatch(headers=(("x", StringMatch(EXACT, "1")),)),
            HttpMatch(headers=(("x", StringMatch(EXACT, "2")),)),
            False,
        ),
        (
            HttpMatch(headers=(("x", StringMatch(MatchKind.PRESENT)),)),
            HttpMatch(headers=(("x", StringMatch(EXACT, "2")),)),
            True,
        ),
    ],
)
def test_a_delegate_only_narrows(root, leaf, kept):
    resolved, dropped = _joined(root, leaf)
    assert (len(resolved), len(dropped)) == ((1, 0) if kept else (0, 1))


def test_a_regex_that_cannot_be_joined_is_reported_with_both_objects_and_the_field():
    _, (dropped,) = _joined(_under(PREFIX, "/a"), _under(REGEX, "/a.*"))
    assert dropped.why == (
        "shop/orders and its delegate shop/leaf both match uri, one of them with a regex, which cannot be joined"
    )


def test_both_matches_hold_together():
    (resolved,), _ = _joined(_under(PREFIX, "/a", port=80), HttpMatch(method=StringMatch(EXACT, "GET")))
    (match,) = resolved.route.match
    assert (match.uri.value, match.port, match.method.value) == ("/a", 80, "GET")


def test_a_missing_delegate_and_one_that_delegates_are_reported():
    root = HttpRoute(delegate=Delegate("leaf", "shop"))
    assert "does not exist" in written_out(routing(root), ())[1][0].why
    leaf = routing(HttpRoute(delegate=Delegate("other", "shop")), name="leaf", hosts=())
    assert "cannot delegate" in written_out(routing(root), (leaf,))[1][0].why
