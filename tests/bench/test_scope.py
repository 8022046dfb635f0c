from __future__ import annotations

from bench.figure import Effort

from bench import scope


def test_what_a_caller_of_five_holds_does_not_grow_with_the_mesh():
    """Sizes, not times."""
    figures = {figure.name: figure for figure in scope.run(Effort(quick=True), lambda _: None)}
    small, large = (
        figures[f"scope, 5 of {size} services called: configuration by default (baseline: all)"] for size in (50, 200)
    )
    assert small.value == small.baseline, "of a few services every proxy is told"
    asked = figures["scope, 5 of 50 services called: configuration on demand (baseline: all)"]
    assert asked.value < asked.baseline / 2 and asked.baseline == small.baseline
    assert large.value < small.value / 2 < large.baseline / 6
    received = {
        what: figures[f"one changed route at 200 services, {what}: received by the caller's proxy"].value
        for what in ("all", "by default")
    }
    assert received["by default"] < received["all"] / 5
