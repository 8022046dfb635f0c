from __future__ import annotations

from bench.figure import Effort

from bench import explain


def test_measures_whole_journeys():
    said = []
    (figure,) = explain.run(Effort(quick=True), said.append)
    assert figure.name == "explain: whole journeys, 10 services" and figure.value > 0
    assert len(said) == 1
