import pytest

from weft.inject.duration import seconds_of


@pytest.mark.parametrize(
    ("text", "seconds"), [("5s", 5), ("1m30s", 90), ("500ms", 0.5), ("1.5h", 5400), ("0", 0), ("0s", 0), ("2µs", 2e-6)]
)
def test_reads_durations_as_go_writes_them(text, seconds):
    assert seconds_of(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "5", "s", "-5s", "5 s", "5sx", "1d", "five", "9" * 100 + "s"])
def test_other_texts_are_not_durations(text):
    assert seconds_of(text) is None
