from __future__ import annotations

import pytest
from bench.figure import Effort

from bench import dns_flood


@pytest.mark.root
def test_measures_lookups_alone_and_beside_a_flood():
    said = []
    figures = dns_flood.run(Effort(quick=True), said.append)
    assert [figure.name.rpartition(": ")[2] for figure in figures] == ["p50", "p99", "the slowest"]
    assert all(figure.value > 0 and figure.baseline > 0 for figure in figures)
    assert said == ["100 lookups alone, 100 beside the flood"]
