import pytest
from envoy.config.core.v3.address_pb2 import CidrRange
from envoy.config.route.v3.route_components_pb2 import HeaderMatcher, QueryParameterMatcher
from envoy.type.matcher.v3.metadata_pb2 import MetadataMatcher
from envoy.type.matcher.v3.path_pb2 import PathMatcher
from envoy.type.matcher.v3.string_pb2 import StringMatcher
from envoy.type.matcher.v3.value_pb2 import ValueMatcher
from google.protobuf.json_format import ParseDict

from weft.explain import matchers
from weft.explain.decision import Unsure
from weft.explain.request import RequestHeaders


@pytest.mark.parametrize(
    ("matcher", "value", "expected"),
    [
        ({"exact": "a"}, "a", True),
        ({"exact": "a"}, "A", False),
        ({"exact": "a", "ignore_case": True}, "A", True),
        ({"prefix": "ab"}, "abc", True),
        ({"suffix": "bc"}, "abc", True),
        ({"contains": "B", "ignore_case": True}, "abc", True),
        ({"safe_regex": {"regex": "a+"}}, "aab", False),
    ],
)
def test_string_matchers(matcher, value, expected):
    assert matchers.text(ParseDict(matcher, StringMatcher()), value) is expected


def test_an_unsupported_matcher_is_unknown():
    with pytest.raises(Unsure):
        matchers.text(StringMatcher(), "a")


def _header(**fields):
    return ParseDict({"name": "x-user", **fields}, HeaderMatcher())


def test_one_matching_value_of_a_repeated_header_is_enough():
    two = RequestHeaders([("x-user", "bob"), ("x-user", "alice")])
    assert matchers.header(_header(string_match={"exact": "alice"}), two)
    assert not matchers.header(_header(string_match={"exact": "bob,alice"}), two)
    assert not matchers.header(_header(string_match={"exact": "alice"}, invert_match=True), two)


def test_a_missing_header_matches_only_as_an_empty_one():
    none = RequestHeaders()
    assert not matchers.header(_header(string_match={"exact": "a"}, invert_match=True), none)
    empty = _header(string_match={"exact": "a"}, invert_match=True, treat_missing_header_as_empty=True)
    assert matchers.header(empty, none)
    assert matchers.header(_header(present_match=True, invert_match=True), none)
    assert not matchers.header(_header(present_match=True), none)


@pytest.mark.parametrize(
    "fields", [{"exact_match": "alice"}, {"prefix_match": "al"}, {"suffix_match": "ce"}, {"contains_match": "lic"}]
)
def test_the_older_ways_to_match_a_header(fields):
    assert matchers.header(_header(**fields), RequestHeaders([("x-user", "alice")]))
    assert not matchers.header(_header(**fields), RequestHeaders([("x-user", "bob")]))


def test_the_first_value_of_a_query_parameter_counts_undecoded():
    found = matchers.query_parameters("/a?x=%61&x=b&y")
    assert found == {"x": "%61", "y": ""}
    assert matchers.query_parameter(QueryParameterMatcher(name="y", present_match=True), found)
    wanted = ParseDict({"name": "x", "string_match": {"exact": "a"}}, QueryParameterMatcher())
    assert not matchers.query_parameter(wanted, found)


def test_a_path_is_matched_without_its_query():
    assert matchers.path(ParseDict({"path": {"exact": "/a"}}, PathMatcher()), "/a?b")
    assert matchers.without_query("/a#b") == "/a"


def test_addresses_lie_within_ranges_of_their_family():
    ten = ParseDict({"address_prefix": "10.0.0.0", "prefix_len": 8}, CidrRange())
    assert matchers.address(ten, "10.1.2.3") and not matchers.address(ten, "192.0.2.1")
    assert not matchers.address(ten, "::1") and not matchers.address(ten, "unix")


@pytest.mark.parametrize(
    ("wanted", "found", "expected"),
    [
        ({"string_match": {"exact": "a"}}, "a", True),
        ({"string_match": {"exact": "a"}}, ["a"], False),
        ({"list_match": {"one_of": {"string_match": {"exact": "a"}}}}, ["b", "a"], True),
        ({"or_match": {"value_matchers": [{"bool_match": True}, {"null_match": {}}]}}, None, True),
        ({"present_match": True}, matchers.MISSING, False),
        ({"bool_match": True}, True, True),
    ],
)
def test_values_of_metadata(wanted, found, expected):
    assert matchers.value(ParseDict(wanted, ValueMatcher()), found) is expected


def test_metadata_is_looked_up_by_filter_and_path():
    wanted = {"filter": "jwt", "path": [{"key": "payload"}, {"key": "sub"}], "value": {"string_match": {"exact": "a"}}}
    matcher = ParseDict(wanted, MetadataMatcher())
    assert matchers.metadata(matcher, {"jwt": {"payload": {"sub": "a"}}})
    assert not matchers.metadata(matcher, {"jwt": {"payload": "sub"}}) and not matchers.metadata(matcher, {})
