import stat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.control import journal
from weft.control.journal import FILE, Journal, Said, SaidEdit, SaidMoment, _head
from weft.model.names import ObjectKey


def key(name):
    return ObjectKey("Service", "shop", name)


def said(word):
    return Said(f'"{word}"', "a.yaml", 3)


def edit(name, before, after):
    return SaidEdit(key(name), said(before) if before else None, said(after) if after else None)


def moment(number, *edits):
    return SaidMoment(number, 100.0 + number, f"digest{number}", edits)


def test_the_first_has_no_past_and_is_remembered(tmp_path):
    first = Journal(tmp_path)
    assert first.begin({key("a"): said("one")}, 100.0, "digest0").moments == ()
    first.add(moment(1, edit("a", "one", "two")))
    first.add(moment(2, edit("b", None, "b")))
    first.close()
    restored = Journal(tmp_path).begin({key("a"): said("two"), key("b"): said("b")}, 200.0, "digest2")
    assert (restored.begun, restored.digest) == (100.0, "digest0")
    assert restored.moments == (moment(1, edit("a", "one", "two")), moment(2, edit("b", None, "b")))
    assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600


def test_what_changed_while_nobody_looked_is_the_last_moment(tmp_path):
    first = Journal(tmp_path)
    first.begin({key("a"): said("one"), key("b"): said("b")}, 100.0, "digest0")
    first.add(moment(7, edit("a", "one", "two")))
    first.close()
    restored = Journal(tmp_path).begin({key("a"): said("three")}, 200.0, "digest8")
    assert restored.moments[-1] == SaidMoment(8, 200.0, "digest8", (edit("a", "two", "three"), edit("b", "b", None)))
    assert [each.number for each in Journal(tmp_path).begin({key("a"): said("three")}, 300.0, "x").moments] == [7, 8]


def test_an_object_that_only_stands_elsewhere_is_no_change(tmp_path):
    Journal(tmp_path).begin({key("a"): said("one")}, 100.0, "digest0")
    assert Journal(tmp_path).begin({key("a"): Said('"one"', "b.yaml", 9)}, 200.0, "digest0").moments == ()


def test_a_line_that_was_not_written_to_its_end_costs_no_more_than_itself(tmp_path):
    first = Journal(tmp_path)
    first.begin({}, 100.0, "digest0")
    first.add(moment(1, edit("a", None, "one")))
    first.add(moment(2, edit("a", "one", "two")))
    first.close()
    (tmp_path / FILE).write_bytes((tmp_path / FILE).read_bytes()[:-9])
    restored = Journal(tmp_path).begin({key("a"): said("two")}, 200.0, "digest2")
    assert restored.moments == (
        moment(1, edit("a", None, "one")),
        SaidMoment(2, 200.0, "digest2", (edit("a", "one", "two"),)),
    )


@given(st.binary(max_size=200))
def test_whatever_the_file_holds_it_goes_on(tmp_path_factory, rubbish):
    directory = tmp_path_factory.mktemp("journal")
    (directory / FILE).write_bytes(rubbish)
    assert Journal(directory).begin({}, 100.0, "digest0").moments == ()


def test_where_nothing_can_be_written_it_goes_on(tmp_path, caplog):
    kept = Journal(tmp_path / "nowhere")
    assert kept.begin({}, 100.0, "digest0").moments == ()
    kept.add(moment(1, edit("a", None, "one")))
    assert "the history is not written down" in caplog.text


def test_the_oldest_are_forgotten_first(tmp_path, monkeypatch):
    monkeypatch.setattr(journal, "MOMENTS", 3)
    first = Journal(tmp_path)
    first.begin({}, 100.0, "digest0")
    for number in range(1, 6):
        first.add(moment(number, edit(str(number), None, "x")))
    first.close()
    restored = Journal(tmp_path).begin({key(str(number)): said("x") for number in range(1, 6)}, 200.0, "digest5")
    assert ([each.number for each in restored.moments], restored.digest) == ([3, 4, 5], "digest2")
    monkeypatch.setattr(journal, "EDITS", 2)
    restored = Journal(tmp_path).begin({key(str(number)): said("x") for number in range(1, 6)}, 300.0, "digest5")
    assert ([each.number for each in restored.moments], restored.digest) == ([4, 5], "digest3")


def test_a_file_that_has_grown_long_is_written_anew(tmp_path, monkeypatch):
    monkeypatch.setattr(journal, "MOST_BYTES", 4_000)
    monkeypatch.setattr(journal, "MOMENTS", 5)
    first = Journal(tmp_path)
    first.begin({}, 100.0, "digest0")
    before = None
    for number in range(1, 200):
        first.add(moment(number, edit("a", before, str(number))))
        before = str(number)
        assert (tmp_path / FILE).stat().st_size < 6_000
    restored = Journal(tmp_path).begin({key("a"): said("199")}, 200.0, "digest199")
    assert [each.number for each in restored.moments] == [195, 196, 197, 198, 199]


@pytest.mark.parametrize("runs", [1, 3])
@given(data=st.data())
def test_what_was_said_last_is_known_after_any_run(tmp_path_factory, runs, data):
    directory = tmp_path_factory.mktemp("journal")
    state, number = {}, 0
    for _ in range(runs):
        kept = Journal(directory)
        kept.begin(state, 1.0, "digest")
        for name, word in data.draw(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["x", "y", None])))):
            number += 1
            was = state.pop(key(name), None)
            if word is not None:
                state[key(name)] = said(word)
            kept.add(SaidMoment(number, 1.0, "digest", (SaidEdit(key(name), was, state.get(key(name))),)))
        kept.close()
    assert _head(Journal(directory)._read()) == state
