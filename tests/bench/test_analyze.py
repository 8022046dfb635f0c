from __future__ import annotations

from bench.figure import Effort

from bench import analyze


def test_measures_reading_checking_and_the_whole_command():
    said = []
    figures = analyze.run(Effort(quick=True), said.append)
    assert [figure.name for figure in figures] == [
        "analyze 1,000 objects: all checks",
        "analyze 1,000 objects: reading the YAML",
        "analyze 1,000 objects: the command, from start to end",
    ]
    assert all(figure.value > 0 for figure in figures)
    assert len(said) == 1
