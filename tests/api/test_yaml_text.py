import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.api.yaml_text import MOST_DEPTH, YamlError, compose


def flaws(text):
    return [(flaw.line, flaw.what, flaw.hint) for flaw in compose(text).flaws]


def error(text, first_line=1):
    with pytest.raises(YamlError) as raised:
        compose(text, first_line)
    return raised.value.flaw


def test_every_field_has_its_line():
    composed = compose("a: 1\nb:\n  - x: 2\n    y: [3,\n      4]\n", first_line=10)
    assert composed.value == {"a": 1, "b": [{"x": 2, "y": [3, 4]}]}
    assert composed.line == 10
    assert composed.lines[("a",)] == 10
    assert composed.lines[("b", 0, "y")] == 13
    assert composed.lines[("b", 0, "y", 1)] == 14


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1),
        ("-7", -7),
        ("0x1f", 31),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        ("true", True),
        ("False", False),
        ("~", None),
        ("", None),
        ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z"),
        ("12:30:45", "12:30:45"),
        ("010", "010"),
        ("'5'", "5"),
        ("!!str 5", "5"),
        ("9" * 40, "9" * 40),
        ("v1", "v1"),
    ],
)
def test_reads_scalars_by_yaml_1_2(text, value):
    assert compose(f"a: {text}").value == {"a": value}


def test_warns_that_yes_is_a_boolean_in_kubernetes():
    composed = compose("on: yes")
    assert composed.value == {"on": "yes"}
    assert [(flaw.line, flaw.severity) for flaw in composed.flaws] == [(1, "warning"), (1, "warning")]
    assert composed.flaws[1].what == "`yes` without quotes is read as text here, but as true by Kubernetes"
    assert composed.flaws[1].hint == 'write "yes" or true'


def test_the_hint_for_an_annotation_does_not_suggest_a_boolean():
    (flaw,) = compose("metadata: {annotations: {weft.dev/on-demand: yes}}").flaws
    assert flaw.hint == "only text is allowed here: put it in quotes"


def test_a_duplicate_key_is_reported_with_both_lines():
    assert flaws("a: 1\nb: 2\na: 3\n") == [
        (3, "`a` is set twice, here and on line 1", "keep only one of the two: YAML would silently use the last value")
    ]


def test_numbers_may_be_keys_but_lists_may_not():
    assert compose("{9090: x}").value == {"9090": "x"}
    assert flaws("true: x") == [(1, "a field name must be text, not 'true'", 'put it in quotes: "true"')]
    assert flaws("? [a]\n: b")[0][:2] == (1, "a field name must be text, not a list or mapping")


def test_merge_keys_and_aliases_work():
    composed = compose("base: &base {a: 1, b: 2}\nuse:\n  <<: *base\n  b: 3\nagain: *base\n")
    assert composed.value["use"] == {"a": 1, "b": 3}
    assert composed.value["again"] == {"a": 1, "b": 2}
    assert composed.lines[("again", "b")] == 1


@pytest.mark.parametrize("text", ["a: [\n", "a: [", "a: {b: 1,\n"])
def test_a_value_that_is_missing_has_a_hint(text):
    assert error(text).hint.endswith("is still open")


def test_a_tab_in_the_indentation_is_reported_as_a_tab():
    flaw = error("a:\n\tb: 1\n")
    assert (flaw.line, flaw.what, flaw.hint) == (2, "a tab is used for indentation", "YAML indents with spaces only")


def test_an_open_bracket_is_reported():
    assert error("a: [1, 2\nb: 3\n", first_line=5).line in (5, 6)


def test_nesting_is_bounded():
    assert error("[" * 100_000).what == f"the document is nested deeper than {MOST_DEPTH} levels"


def test_aliases_of_aliases_do_not_explode():
    bomb = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"{new}: &{new} [{', '.join(['*' + old] * 9)}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
    )
    assert "the document has more than" in error(bomb).what


def test_an_anchor_inside_itself_is_an_error():
    assert [what for _, what, _ in flaws("&a [*a]")] == ["the anchor `&a` is not known here"]


def test_unknown_tags_are_refused():
    assert flaws("a: !python/object x")[0][1] == "the YAML tag `!python/object` is not known"


@given(st.text())
def test_any_text_is_yaml_or_a_yaml_error(text):
    try:
        compose(text)
    except YamlError as error:
        assert error.flaw.line >= 1


@given(st.text(alphabet="ab:-[]{}&*!|>'\"# \n\t<?,%@`\x00\x85\u2028\ud7ff", max_size=40))
def test_punctuation_is_yaml_or_a_yaml_error(text):
    try:
        compose(text)
    except YamlError as error:
        assert error.flaw.line >= 1


def test_many_anchors_take_linear_time():
    """Each anchor was once searched for in the whole document: a text of some hundred kilobytes took minutes."""

    def steps(size):
        text = "\n".join(f"k{number}: &a{number} 1" for number in range(size))
        taken = 0

        def count(frame, _event, _argument):
            nonlocal taken
            frame.f_trace_opcodes = True
            taken += 1
            return count

        sys.settrace(count)
        try:
            compose(text)
        finally:
            sys.settrace(None)
        return taken

    assert steps(400) < 3 * steps(200)


def test_fields_below_an_anchor_have_lines_at_the_anchor_and_at_its_aliases():
    composed = compose("a: &x\n  b: 1\n  c: &y [2]\nd: *x\ne: *y\n")
    assert composed.value == {"a": {"b": 1, "c": [2]}, "d": {"b": 1, "c": [2]}, "e": [2]}
    assert (composed.lines[("a", "c", 0)], composed.lines[("d", "c", 0)], composed.lines[("e", 0)]) == (3, 3, 3)
    assert (composed.lines[("a",)], composed.lines[("d",)]) == (1, 4)
