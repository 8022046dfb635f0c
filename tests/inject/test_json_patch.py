from hypothesis import given
from hypothesis import strategies as st

from inject.pods import apply
from weft.inject.json_patch import copied, difference, same

SCALARS = (
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "a", "b/c", "d~e", "~1"]) | st.floats(0, 2)
)
NAMES = st.sampled_from(["one", "two", "three", "four"])
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["a", "b", "c/d", "e~f", "name"]), inner, max_size=4)
        | st.lists(st.fixed_dictionaries({"name": NAMES, "x": inner}), max_size=4)
    ),
    max_leaves=12,
)


@given(VALUES, VALUES)
def test_applied_in_order_the_operations_give_the_second_value(before, after):
    assert same(apply({"root": before}, difference({"root": before}, {"root": after})), {"root": after})


@given(VALUES)
def test_nothing_is_done_where_nothing_differs(value):
    assert difference(value, value) == []


def test_one_more_in_front_does_not_rewrite_the_rest():
    before = [{"name": "app", "image": "1", "probe": {"port": 80}}]
    after = [{"name": "proxy"}, {"name": "app", "image": "1", "probe": {"port": 15020}}]
    assert difference(before, after) == [
        {"op": "add", "path": "/0", "value": {"name": "proxy"}},
        {"op": "replace", "path": "/1/probe/port", "value": 15020},
    ]


def test_what_went_is_removed_from_the_end_so_that_places_hold():
    before = [{"name": each} for each in "abcd"]
    after = [{"name": "b"}, {"name": "d"}]
    assert difference(before, after) == [{"op": "remove", "path": "/2"}, {"op": "remove", "path": "/0"}]


def test_names_with_slashes_and_tildes_are_escaped():
    assert difference({}, {"istio.io/rev~x": "1"}) == [{"op": "add", "path": "/istio.io~1rev~0x", "value": "1"}]


def test_true_is_not_one():
    assert difference({"a": 1}, {"a": True}) == [{"op": "replace", "path": "/a", "value": True}]
    assert not same(1, 1.0)


def test_a_copy_shares_nothing_not_even_with_itself():
    probe = {"port": 80}
    found = copied({"a": probe, "b": [probe]})
    found["a"]["port"] = 81
    assert found["b"] == [{"port": 80}]
    assert probe == {"port": 80}


class _Counting(str):
    __slots__ = ()
    compared = 0

    def __eq__(self, other):
        type(self).compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def test_a_long_list_costs_as_much_as_it_is_long_and_no_more():
    """The author of a pod must not be able to block the webhook for others."""
    size = 500
    before = [{"name": _Counting(f"volume-{number}")} for number in range(size)]
    after = [{"name": _Counting(f"volume-{number}")} for number in range(size)] + [{"name": _Counting("one-more")}]
    assert difference(before, after) == [{"op": "add", "path": f"/{size}", "value": {"name": "one-more"}}]
    assert _Counting.compared < 20 * size
