import stat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.history import journal
from weft.history.journal import DAMAGED, FILE, Journal, Said, SaidEdit, SaidMoment, _head
from weft.model.names import ObjectKey


def key(name):
    return ObjectKey("Service", "shop", name)


def said(word):
    return Said(f'"{word}"', "a.yaml", 3)


def edit(name, before, after):
    return SaidEdit(key(name), said(before) if before else None, said(after) if after else None)


def moment(number, *edits):
    return SaidMoment(number, 100.0 + number, f"digest{number}", edits)


def test_the_first_run_has_no_past_and_is_recorded(tmp_path):
    first = Journal(tmp_path)
    assert first.begin({key("a"): said("one")}, 100.0, "digest0").moments == ()
    first.add(moment(1, edit("a", "one", "two")))
    first.add(moment(2, edit("b", None, "b")))
    first.close()
    restored = Journal(tmp_path).begin({key("a"): said("two"), key("b"): said("b")}, 200.0, "digest2")
    assert (restored.begun, restored.digest) == (100.0, "digest0")
    assert restored.moments == (moment(1, edit("a", "one", "two")), moment(2, edit("b", None, "b")))
    assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600


def test_changes_while_no_control_plane_ran_are_the_last_moment(tmp_path):
    first = Journal(tmp_path)
    first.begin({key("a"): said("one"), key("b"): said("b")}, 100.0, "digest0")
    first.add(moment(7, edit("a", "one", "two")))
    first.close()
    restored = Journal(tmp_path).begin({key("a"): said("three")}, 200.0, "digest8")
    assert restored.moments[-1] == SaidMoment(8, 200.0, "digest8", (edit("a", "two", "three"), edit("b", "b", None)))
    assert [each.number for each in Journal(tmp_path).begin({key("a"): said("three")}, 300.0, "x").moments] == [7, 8]


def test_an_object_that_only_moved_in_its_file_is_no_change(tmp_path):
    Journal(tmp_path).begin({key("a"): said("one")}, 100.0, "digest0")
    assert Journal(tmp_path).begin({key("a"): Said('"one"', "b.yaml", 9)}, 200.0, "digest0").moments == ()


def test_an_incomplete_line_loses_only_that_line(tmp_path):
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
def test_whatever_the_file_contains_the_journal_continues(tmp_path_factory, rubbish):
    directory = tmp_path_factory.mktemp("journal")
    (directory / FILE).write_bytes(rubbish)
    assert Journal(directory).begin({}, 100.0, "digest0").moments == ()


def test_an_unwritable_journal_does_not_stop_the_control_plane(tmp_path, caplog):
    kept = Journal(tmp_path / "nowhere")
    assert kept.begin({}, 100.0, "digest0").moments == ()
    kept.add(moment(1, edit("a", None, "one")))
    assert "the history is not recorded" in caplog.text


def test_the_oldest_moments_are_dropped_first(tmp_path, monkeypatch):
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
def test_the_last_content_is_known_after_any_run(tmp_path_factory, runs, data):
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


def kept_after_damage(directory, line, *, now, digest):
    """Damage one byte of a line of the file, and return what is restored."""
    lines = (directory / FILE).read_bytes().splitlines(keepends=True)
    lines[line] = lines[line][:20] + b"\xff" + lines[line][21:]
    (directory / FILE).write_bytes(b"".join(lines))
    return Journal(directory).begin(now, 200.0, digest)


@pytest.fixture
def four(tmp_path):
    """A journal with a beginning and four moments, which change two objects in turn."""
    first = Journal(tmp_path)
    first.begin({key("a"): said("a0"), key("b"): said("b0")}, 100.0, "digest0")
    first.add(moment(1, edit("a", "a0", "a1")))
    first.add(moment(2, edit("b", "b0", "b2")))
    first.add(moment(3, edit("a", "a1", "a3")))
    first.add(moment(4, edit("a", "a3", "a4")))
    first.close()
    return tmp_path


NOW = {key("a"): said("a4"), key("b"): said("b2")}


def test_a_bad_byte_costs_its_line_and_the_file_is_kept_aside(four, caplog):
    restored = kept_after_damage(four, 3, now=NOW, digest="digest4")
    assert [each.number for each in restored.moments] == [1, 2, 3, 4]
    # The content of the lost line follows from the lines around it.
    assert restored.moments[2].edits == (edit("a", "a1", "a3"),)
    assert b"\xff" in (four / DAMAGED).read_bytes() and b"\xff" not in (four / FILE).read_bytes()
    assert stat.S_IMODE((four / DAMAGED).stat().st_mode) == 0o600
    assert "1 line cannot be read" in caplog.text and DAMAGED in caplog.text


def test_a_change_in_a_lost_line_is_restored_from_the_current_objects(four):
    restored = kept_after_damage(four, 2, now=NOW, digest="digest4")
    assert [each.edits for each in restored.moments[:2]] == [(edit("a", "a0", "a1"),), (edit("b", "b0", "b2"),)]
    assert len(restored.moments) == 4


def test_without_the_beginning_the_moments_are_still_restored(four):
    restored = kept_after_damage(four, 0, now=NOW, digest="digest4")
    assert [each.number for each in restored.moments] == [1, 2, 3, 4]
    assert [each.number for each in Journal(four).begin(NOW, 300.0, "digest4").moments] == [1, 2, 3, 4]


def test_a_lost_line_of_an_earlier_run_affects_no_other_line(four):
    Journal(four).begin(NOW, 200.0, "digest4")
    restored = kept_after_damage(four, 1, now=NOW, digest="digest4")
    assert [each.number for each in restored.moments] == [1, 3, 4]


def test_a_torn_last_line_is_no_damage(four):
    (four / FILE).write_bytes((four / FILE).read_bytes()[:-9])
    Journal(four).begin(NOW, 200.0, "digest4")
    assert not (four / DAMAGED).exists()


def test_a_file_too_long_to_be_read_is_kept_aside(four, monkeypatch):
    monkeypatch.setattr(journal, "LONGEST", 10)
    assert Journal(four).begin(NOW, 200.0, "digest4").moments == ()
    assert (four / DAMAGED).exists()


def test_large_objects_do_not_make_a_file_beyond_its_bound(tmp_path, monkeypatch):
    monkeypatch.setattr(journal, "MOST_BYTES", 100_000)
    monkeypatch.setattr(journal, "MOST_OBJECT", 25_000)
    first = Journal(tmp_path)
    first.begin({key("a"): said("0" * 10_000)}, 100.0, "digest0")
    words = [str(number) * (10_000 // len(str(number))) for number in range(70)]
    first.add(moment(1, edit("a", "0" * 10_000, words[1])))
    for number in range(2, 70):
        first.add(moment(number, edit("a", words[number - 1], words[number])))
        assert (tmp_path / FILE).stat().st_size < 100_000 + 2 * 25_000
    first.close()
    restored = Journal(tmp_path).begin({key("a"): said(words[69])}, 200.0, "digest69")
    assert [each.number for each in restored.moments] == [68, 69] and restored.digest == "digest67"
    assert (tmp_path / FILE).stat().st_size < 75_000


def test_only_a_digest_is_stored_of_an_object_that_is_too_long(tmp_path, monkeypatch):
    monkeypatch.setattr(journal, "MOST_OBJECT", 1_000)
    first = Journal(tmp_path)
    first.begin({key("a"): said("x" * 2_000)}, 100.0, "digest0")
    first.add(moment(1, edit("a", "x" * 2_000, "y" * 2_000)))
    first.close()
    assert (tmp_path / FILE).stat().st_size < 1_000
    (only,) = Journal(tmp_path).begin({key("a"): said("y" * 2_000)}, 200.0, "digest1").moments
    assert only.edits[0].after.said.startswith('"sha256:') and only.edits[0].before != only.edits[0].after


def test_a_torn_last_line_is_not_counted_with_the_damaged_ones(four, caplog):
    lines = (four / FILE).read_bytes().splitlines(keepends=True)
    (four / FILE).write_bytes(b"".join([lines[0], b"garbage\n", *lines[2:]])[:-9])
    Journal(four).begin(NOW, 200.0, "digest4")
    assert "1 line cannot be read" in caplog.text and "2 lines" not in caplog.text
