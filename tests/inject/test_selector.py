import pytest

from weft.inject.selector import Selector, SelectorRequirement


@pytest.mark.parametrize(
    ("requirement", "fits", "not_"),
    [
        (SelectorRequirement("a", "In", ("1", "2")), [{"a": "1"}, {"a": "2"}], [{}, {"a": "3"}, {"a": ""}]),
        (SelectorRequirement("a", "NotIn", ("1",)), [{}, {"a": "2"}, {"b": "1"}], [{"a": "1"}]),
        (SelectorRequirement("a", "Exists"), [{"a": ""}, {"a": "1"}], [{}, {"b": "1"}]),
        (SelectorRequirement("a", "DoesNotExist"), [{}, {"b": "1"}], [{"a": ""}]),
    ],
    ids=str,
)
def test_operators_mean_what_they_mean_to_the_api_server(requirement, fits, not_):
    assert all(requirement.fits(labels) for labels in fits)
    assert not any(requirement.fits(labels) for labels in not_)


def test_all_of_a_selector_must_fit_and_an_empty_one_takes_everything():
    both = Selector(match_labels={"a": "1"}, match_expressions=(SelectorRequirement("b", "Exists"),))
    assert both.selects({"a": "1", "b": ""})
    assert not both.selects({"a": "1"})
    assert not both.selects({"b": "1"})
    assert Selector().selects({})
    assert str(both) == "a is 1, b is set"
    assert str(Selector()) == "everything"
