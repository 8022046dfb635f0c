from __future__ import annotations

from bench.figure import Effort

from bench import scope


def test_what_a_caller_of_five_holds_does_not_grow_with_the_mesh():
    """Sizes, not times."""
    figures = {figure.name: figure for figure in scope.run(Effort(quick=True), lambda _: None)}
    small, large = (
        figures[f"scope, 5 of {size} services called: configuration on demand (baseline: all)"] for size in (50, 200)
    )
    assert large.value < 1.05 * small.value
    assert large.baseline > 3 * small.baseline > 3 * small.value
    received = {
        what: figures[f"one changed route at 200 services, {what}: received by the caller's proxy"].value
        for what in ("all", "on demand")
    }
    assert received["on demand"] < received["all"] / 5
