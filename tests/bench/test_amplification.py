from __future__ import annotations

from bench.figure import Effort

from bench import amplification


def test_a_failing_backend_across_three_hops_gets_no_storm():
    """Counts, not times: how many requests arrive for one that was made."""
    figures = amplification.run(Effort(quick=True), lambda _: None)
    assert len(figures) == 6
    assert [figure.name for figure in figures if not figure.ok] == []
    assert {figure.value for figure in figures if "UNAVAILABLE" in figure.name} == {1.0}
