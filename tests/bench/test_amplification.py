from __future__ import annotations

from bench.figure import Effort

from bench import amplification


def test_a_failing_backend_across_three_hops_gets_no_storm():
    """Counts, not times: the number of requests that arrive for each request that was sent."""
    figures = amplification.run(Effort(quick=True), lambda _: None)
    assert len(figures) == 6
    assert [figure.name for figure in figures if not figure.ok] == []
    assert {figure.value for figure in figures if "UNAVAILABLE" in figure.name} == {1.0}
