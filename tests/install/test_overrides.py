"""Values files and --set, merged in order."""

import pytest

from weft.install.overrides import assigned, read_values
from weft.install.values import ValuesError


def test_the_last_file_wins_and_set_wins_over_files():
    files = [("a", "control: {replicas: 3, logLevel: debug}"), ("b", "control: {replicas: 4}")]
    values = read_values(files, ["control.replicas=5"])
    assert (values.control.replicas, values.control.log_level) == (5, "debug")
    assert read_values(files, []).control.replicas == 4


@pytest.mark.parametrize(
    ("assignment", "expected"),
    [
        ("a=1", {"a": 1}),
        ("a.b=true", {"a": {"b": True}}),
        ("a.b=x=y", {"a": {"b": "x=y"}}),
        ("a=", {"a": ""}),
        ("a=[x, y]", {"a": ["x", "y"]}),
        (r"a.kubernetes\.io/os=linux", {"a": {"kubernetes.io/os": "linux"}}),
        ("a[0].b=1", {"a": [{"b": 1}]}),
    ],
)
def test_an_assignment_is_a_mapping(assignment, expected):
    assert assigned(assignment, {}) == expected


def test_an_item_of_a_list_is_changed_and_its_neighbours_stay():
    assert assigned("a[1].x=2", {"a": [{"x": 0}, {"x": 1, "y": 1}]}) == {"a": [{"x": 0}, {"x": 2, "y": 1}]}


def test_one_limit_is_set_or_removed_and_the_others_are_kept():
    limits = read_values([], ["control.resources.limits.cpu=4"]).control.resources.limits
    assert limits == {"cpu": 4, "memory": "1Gi"}
    assert read_values([], ["control.resources.limits.cpu=null"]).control.resources.limits == {"memory": "1Gi"}


def test_null_takes_a_value_back_to_its_default():
    assert read_values([("a", "control: {replicas: 3}")], ["control.replicas=null"]).control.replicas == 2


@pytest.mark.parametrize("assignment", ["a", "=1", "a..b=1", "a.=1", ".a=1", "a[1]=x", "a[x]=1"])
def test_an_invalid_assignment_is_rejected(assignment):
    with pytest.raises(ValuesError):
        assigned(assignment, {})


@pytest.mark.parametrize("text", ["a: [", "- a", "just text"])
def test_a_file_that_holds_no_values_is_refused_with_its_name(text):
    with pytest.raises(ValuesError) as error:
        read_values([("mine.yaml", text)], [])
    assert error.value.problem.where.file == "mine.yaml"


def test_an_empty_file_changes_nothing():
    assert read_values([("a", "")], []) == read_values([], [])
